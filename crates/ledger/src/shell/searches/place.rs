//! Where the directory of a search is, as the ledger knows it.

use crate::error::LedgerError;
use crate::url::LedgerUrl;
use std::path::{Path, PathBuf};

/// A search by the directory that it is in and its name there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SearchPlace {
    /// The path of the directory of searches; `../searches` if the ledger is a file in the directory beside it, so that
    /// the workspace can be moved.
    pub(super) root: String,
    pub(super) dir: String,
}

impl SearchPlace {
    pub(super) fn of(url: &LedgerUrl, search: &Path) -> Result<Self, LedgerError> {
        let failed = |source| LedgerError::File { what: "find", path: search.to_owned(), source };
        let path = search.canonicalize().map_err(failed)?;
        let dir = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { root: root_of(url, path.parent().unwrap_or(Path::new("/"))), dir })
    }

    /// Processes that write about this search wait for each other by this name.
    pub(super) fn key(&self) -> String {
        format!("search {}/{}", self.root, self.dir)
    }
}

/// How the ledger names a directory of searches.
pub(super) fn root_of(url: &LedgerUrl, searches: &Path) -> String {
    let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_missing| path.to_owned());
    let searches = canonical(searches);
    if let LedgerUrl::Sqlite(file) = url
        && let Some(name) = searches.file_name()
        && canonical(directory_of(file)).parent() == searches.parent()
    {
        return format!("../{}", name.to_string_lossy());
    }
    searches.to_string_lossy().into_owned()
}

/// Whether this is a name that [`root_of`] gives to a directory beside the ledger's.
pub(super) fn is_beside(root: &str) -> bool {
    root.starts_with("../")
}

/// A row with this place, seen from here.
pub(super) fn path_of(url: &LedgerUrl, root: &str, dir: &str) -> PathBuf {
    match (url, root.strip_prefix("../")) {
        (LedgerUrl::Sqlite(file), Some(name)) => {
            let runs = directory_of(file);
            let workspace = runs.parent().filter(|_named| runs.file_name().is_some());
            workspace.map_or_else(|| runs.join(root), |workspace| workspace.join(name)).join(dir)
        }
        _ => Path::new(root).join(dir),
    }
}

fn directory_of(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_beside_the_ledger_have_a_name_that_moves_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let [runs, searches] = ["runs", "searches"].map(|name| dir.path().join(name));
        [&runs, &searches].into_iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
        let file = LedgerUrl::Sqlite(runs.join("ledger.sqlite"));
        assert_eq!(root_of(&file, &searches), "../searches");
        assert_eq!(path_of(&file, "../searches", "s1"), searches.join("s1"));
        let server = LedgerUrl::Postgres("postgres://x/y".to_owned());
        let root = root_of(&server, &searches);
        assert_eq!(path_of(&server, &root, "s1"), searches.canonicalize().unwrap().join("s1"));
        let relative = |text: &str| path_of(&LedgerUrl::Sqlite(text.into()), "../searches", "s1");
        assert_eq!(relative("runs/ledger.sqlite"), Path::new("searches/s1"));
        assert_eq!(relative("ledger.sqlite"), Path::new("./../searches/s1"));
    }
}
