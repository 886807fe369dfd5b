//! A process that fills a journal and says on its standard output which operation was acknowledged. Tests kill it.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a program for tests stops where it fails")]
#![expect(dead_code, reason = "the tests use the rest of the table")]

#[path = "../tests/segments/table.rs"]
mod table;

use phalanx_segments::{Durability, recover};
use std::path::PathBuf;
use std::thread::JoinHandle;
use table::{Lengths, Table, small_settings};

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let directory = PathBuf::from(arguments.next().unwrap());
    let mut number = || arguments.next().unwrap().into_string().unwrap().parse().unwrap();
    let lengths = Lengths { small: number(), large: number() };
    let mut recovery = recover(&directory, small_settings(Durability::EveryWrite)).unwrap();
    let mut table = Table::read(lengths, &mut recovery);
    let journal = recovery.start().unwrap();
    let mut snapshot: Option<JoinHandle<()>> = None;
    loop {
        let op = table.last + 1;
        let (record, key, entry) = table.prepare(&journal).split();
        let done = move |result: Result<_, _>| {
            result.unwrap();
            println!("{op}");
        };
        journal.append(record, Box::new(done)).unwrap();
        table.commit(key, entry);
        if journal.snapshot_due().is_some() && snapshot.as_ref().is_none_or(JoinHandle::is_finished) {
            let pending = journal.begin_snapshot().unwrap();
            let records = table.snapshot();
            snapshot = Some(std::thread::spawn(move || {
                pending.write(records).unwrap();
            }));
        }
    }
}
