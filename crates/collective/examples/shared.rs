//! Times all-reduce between processes of one host, which are this program started again.
//!
//! `cargo run --release -p phalanx-collective --example shared -- [RANKS...]`

use phalanx_collective::{CollectiveError, Reduction, SegmentAddress, SharedGroup};
use phalanx_types::DType;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SIZES: [usize; 6] = [4 << 10, 64 << 10, 256 << 10, 4 << 20, 64 << 20, 256 << 20];
const LARGEST: usize = 256 << 20;
/// How long one size is measured.
const TIME: Duration = Duration::from_millis(700);

fn main() -> Result<(), Box<dyn Error>> {
    if let Ok(place) = std::env::var("SHARED_RANK") {
        let (rank, ranks) = place.split_once('/').ok_or("SHARED_RANK is RANK/RANKS")?;
        return measure(rank.parse()?, ranks.parse()?);
    }
    let wanted: Vec<usize> = std::env::args().skip(1).map(|ranks| ranks.parse()).collect::<Result<_, _>>()?;
    let wanted = if wanted.is_empty() { vec![2, 4] } else { wanted };
    for ranks in wanted {
        start(ranks)?;
    }
    Ok(())
}

/// Starts the ranks and carries their addresses from each to all.
fn start(ranks: usize) -> Result<(), Box<dyn Error>> {
    let mut children = Vec::new();
    let mut addresses = String::new();
    for rank in 0..ranks {
        let mut child = Command::new(std::env::current_exe()?)
            .env("SHARED_RANK", format!("{rank}/{ranks}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut output = BufReader::new(child.stdout.take().ok_or("a child without output")?);
        output.read_line(&mut addresses)?;
        children.push((child, output));
    }
    for (child, _) in &mut children {
        child.stdin.take().ok_or("a child without input")?.write_all(addresses.as_bytes())?;
    }
    let (_, output) = children.first_mut().ok_or("no ranks")?;
    for line in output.lines() {
        writeln!(std::io::stdout(), "{}", line?)?;
    }
    children.iter_mut().try_for_each(|(child, _): &mut (Child, _)| child.wait().map(drop))?;
    Ok(())
}

fn measure(rank: usize, ranks: usize) -> Result<(), Box<dyn Error>> {
    let (prepared, own) = SharedGroup::prepare(rank, ranks, 1, LARGEST)?;
    let mut out = std::io::stdout();
    writeln!(out, "{} {} {} {}", own.pid, own.fd, own.bytes, own.token)?;
    let mut addresses = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line?;
        let mut words = line.split(' ');
        let mut word = || words.next().ok_or("an address has four numbers");
        let (pid, fd) = (word()?.parse()?, word()?.parse()?);
        addresses.push(SegmentAddress { pid, fd, bytes: word()?.parse()?, token: word()?.parse()? });
    }
    let mut group = prepared.connect(&addresses)?;
    let mut buffer = group.buffer(LARGEST)?;
    buffer.slice_mut::<f32>()?.fill(1.0);
    let mut private = vec![1.0_f32; LARGEST / 4];
    let only = std::env::var("SIZE").ok().and_then(|v| v.parse::<usize>().ok());
    for size in SIZES.into_iter().filter(|s| only.is_none_or(|o| o << 10 == *s)) {
        let shared = median(&mut group, |group| {
            group.all_reduce_shared(&mut buffer, 0..size, DType::F32, Reduction::Sum, "shared")
        })?;
        let data = bytemuck::cast_slice_mut(&mut private[..size / 4]);
        let copied =
            median(&mut group, |group| group.all_reduce(data, DType::F32, Reduction::Sum, "private"))?;
        if rank == 0 {
            let rate = |time: Duration| size as f64 / time.as_secs_f64() / 1e9;
            writeln!(
                out,
                "{ranks} ranks {:>9} KiB: shared {:>10.1} us {:>6.2} GB/s, private {:>10.1} us {:>6.2} GB/s",
                size >> 10,
                shared.as_secs_f64() * 1e6,
                rate(shared),
                copied.as_secs_f64() * 1e6,
                rate(copied),
            )?;
        }
    }
    Ok(())
}

/// The median time of a call on this rank. All ranks make as many calls, as rank 0 says.
fn median(
    group: &mut SharedGroup,
    mut call: impl FnMut(&mut SharedGroup) -> Result<(), CollectiveError>,
) -> Result<Duration, Box<dyn Error>> {
    call(group)?;
    let start = Instant::now();
    for _ in 0..3 {
        call(group)?;
    }
    let mut calls = [(TIME.as_secs_f64() / start.elapsed().as_secs_f64() * 3.0).clamp(5.0, 100_000.0) as u64];
    group.broadcast(0, bytemuck::cast_slice_mut(&mut calls), DType::U64, "calls")?;
    let mut times = Vec::new();
    for _ in 0..calls[0] {
        let start = Instant::now();
        call(group)?;
        times.push(start.elapsed());
    }
    times.sort();
    Ok(times[times.len() / 2])
}
