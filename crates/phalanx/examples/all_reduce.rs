// Three ranks add up their numbers; all end with the same bits. Ranks may also be processes, on one host or many.

use phalanx::collective::{CollectiveError, Group, Reduction, all_reduce_f32, in_process};

fn rank(mut group: Group) -> Result<Vec<f32>, CollectiveError> {
    let mut data = vec![group.rank() as f32 + 0.5; 1000];
    all_reduce_f32(&mut group, &mut data, Reduction::Sum, "numbers")?;
    group.barrier("end")?;
    Ok(data)
}

#[expect(clippy::print_stdout, reason = "an example shows what it does")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let groups = in_process(3, 0)?;
    let threads: Vec<_> = groups.into_iter().map(|group| std::thread::spawn(|| rank(group))).collect();
    for thread in threads {
        let sums = thread.join().map_err(|_panic| "a rank panicked")??;
        assert_eq!(sums, [4.5; 1000]);
    }
    println!("0.5 + 1.5 + 2.5 = 4.5 on all ranks");
    Ok(())
}
