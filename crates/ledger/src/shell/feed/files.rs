//! Files of a run: those that are listed, and whether one was written since.

use crate::error::SqlError;
use crate::shell::sql::Sql;
use crate::value::Value;
use std::path::Path;

/// More files of a run are not listed.
const MOST_FILES: usize = 10_000;

/// Replaces the list of files; what events said of them stays.
pub(super) fn write_files(sql: &mut dyn Sql, id: i64, files: &[(String, u64)]) -> Result<(), SqlError> {
    sql.execute("delete from artifact where run = $1 and url is null and sha256 is null", &[Value::Int(id)])?;
    for (path, size) in files {
        let upsert = "insert into artifact (run, path, size) values ($1, $2, $3) \
                      on conflict (run, path) do update set size = excluded.size";
        sql.execute(upsert, &[Value::Int(id), path.as_str().into(), (*size).into()])?;
    }
    Ok(())
}

/// Says whether a file was written since: its size and time.
pub(super) fn stamp_of(path: &Path) -> String {
    rustix::fs::stat(path).map_or_else(|_missing| String::new(), |stat| stamp(&stat))
}

/// The same of a file that was looked at already.
pub(in crate::shell) fn stamp(stat: &rustix::fs::Stat) -> String {
    format!("{} {}.{}", stat.st_size, stat.st_mtime, stat.st_mtime_nsec)
}

/// Files of a run that are worth a download, with their sizes.
pub(super) fn files_of(run: &Path) -> Vec<(String, u64)> {
    const OURS: [&str; 4] = ["lock", "live.json", "losses.csv", "val_accuracies.csv"];
    let mut found = Vec::new();
    let mut folders = vec![(run.to_owned(), String::new())];
    while let Some((folder, prefix)) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Ok(kind) = entry.file_type() else { continue };
            let path = format!("{prefix}{name}");
            if found.len() == MOST_FILES || name.ends_with(".tmp") || OURS.contains(&path.as_str()) {
                continue;
            }
            if kind.is_dir()
                && ["checkpoints", "artifacts", "plots"].iter().any(|kept| path.starts_with(kept))
            {
                folders.push((entry.path(), format!("{path}/")));
            } else if kind.is_file() {
                found.push((path, entry.metadata().map_or(0, |file| file.len())));
            }
        }
    }
    found
}
