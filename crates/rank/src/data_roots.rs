//! Directories of a node that runs may use without asking their drivers for the files.

use std::io;
use std::path::{Component, Path, PathBuf};

/// Where paths of a run file begin that are relative to a root: a name that no real path has.
pub(crate) const RELATIVE: &str = "/.phalanx-data-root";

/// What a node allows runs to open besides files that their drivers list.
#[derive(Debug, Clone, Default)]
pub struct DataRoots {
    roots: Vec<Root>,
    /// Whether all of it belongs to the user who drives the runs of this node: then errors may quote it.
    is_drivers: bool,
}

#[derive(Debug, Clone)]
struct Root {
    /// As it was given, but absolute.
    given: PathBuf,
    /// Without links.
    real: PathBuf,
}

impl DataRoots {
    /// Directories, or single files, that must be there.
    ///
    /// # Errors
    /// One is not there.
    pub fn open(paths: impl IntoIterator<Item = impl AsRef<Path>>) -> io::Result<Self> {
        let open = |path: &Path| {
            let here =
                |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
            let given = std::path::absolute(path).map_err(here)?;
            let real = given.canonicalize().map_err(here)?;
            Ok(Root { given, real })
        };
        let roots = paths.into_iter().map(|path| open(path.as_ref())).collect::<io::Result<_>>()?;
        Ok(Self { roots, is_drivers: false })
    }

    /// The files and folders of one run, for a node that its driver starts on its own host. What is not there is left
    /// out.
    pub fn of_driver(paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Self {
        let roots = paths.into_iter().filter_map(|path| Self::open([path]).ok()).flat_map(|root| root.roots);
        Self { roots: roots.collect(), is_drivers: true }
    }

    /// Both together.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.is_drivers = match (self.roots.is_empty(), other.roots.is_empty()) {
            (true, _) => other.is_drivers,
            (false, true) => self.is_drivers,
            (false, false) => self.is_drivers && other.is_drivers,
        };
        self.roots.extend(other.roots);
        self
    }

    /// Whether errors may quote what is in the files: the driver of the runs can read all of them itself.
    pub fn are_drivers(&self) -> bool {
        self.is_drivers
    }

    /// Where a path is in a root: an absolute one that begins with a root, or one that is relative to a root. Links are
    /// followed as long as they stay in the root.
    pub fn find(&self, named: &Path) -> Option<PathBuf> {
        self.roots.iter().find_map(|root| root.find(named))
    }
}

impl Root {
    fn find(&self, named: &Path) -> Option<PathBuf> {
        let rest = [&self.given, &self.real].into_iter().find_map(|root| named.strip_prefix(root).ok());
        let rest = rest.or_else(|| named.strip_prefix(RELATIVE).ok());
        let rest = rest.or_else(|| named.is_relative().then_some(named))?;
        if !is_plain(rest) {
            return None;
        }
        // An empty rest would add a separator, which the path of a file must not end with.
        let at = |root: &Path| if rest.as_os_str().is_empty() { root.to_owned() } else { root.join(rest) };
        let real = at(&self.real).canonicalize().ok()?;
        let is_known = real.metadata().is_ok_and(|about| about.is_file() || about.is_dir());
        (is_known && real.starts_with(&self.real)).then(|| at(&self.given))
    }
}

/// Whether a path leads down only.
pub(crate) fn is_plain(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_what_is_in_a_root_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let (root, outside) = (dir.path().join("root"), dir.path().join("outside"));
        std::fs::create_dir_all(root.join("set")).unwrap();
        for file in [root.join("set/a.csv"), outside.clone()] {
            std::fs::write(file, b"1,2\n").unwrap();
        }
        symlink(&outside, root.join("out")).unwrap();
        symlink("set/a.csv", root.join("in")).unwrap();
        let roots = DataRoots::open([&root]).unwrap();
        let found = |path: &Path| roots.find(path);
        assert_eq!(found(&root.join("set/a.csv")), Some(root.join("set/a.csv")));
        assert_eq!(found(Path::new("set/a.csv")), Some(root.join("set/a.csv")));
        assert_eq!(found(&Path::new(RELATIVE).join("set")), Some(root.join("set")));
        assert_eq!(found(&root.join("in")), Some(root.join("in")));
        for path in [outside.as_path(), &root.join("out"), &root.join("../outside"), Path::new("../outside")]
        {
            assert_eq!(found(path), None, "{}", path.display());
        }
        assert_eq!(found(Path::new("/dev/zero")), None);
        assert!(DataRoots::open([dir.path().join("nowhere")]).is_err());
        // A file can be a root by itself.
        let one = DataRoots::of_driver([&outside]);
        assert_eq!(one.find(&outside), Some(outside.clone()));
        assert_eq!(one.find(&root.join("set/a.csv")), None);
    }
}
