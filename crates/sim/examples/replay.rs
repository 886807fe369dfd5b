//! tmp
fn main() {
    let seed = std::env::args().nth(1).unwrap().parse().unwrap();
    let r = phalanx_sim::jobs::run(seed, &phalanx_sim::jobs::Options { trace: true, ..Default::default() });
    println!("{}", r.trace.unwrap());
    println!("{:?}", r.violation);
}
