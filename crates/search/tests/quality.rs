//! The default algorithm is worth its work: after 100 trials it has found more than the others.

#[expect(dead_code, reason = "the example uses all of it")]
#[path = "../examples/quality/problem.rs"]
mod problem;
#[path = "../examples/quality/search.rs"]
mod search;

use phalanx_search::core::algorithm::AlgorithmKind;
use problem::Problem;
use std::fmt::Write as _;

/// The mean share of the true hypervolume over five seeds.
fn share(problem: &Problem, algorithm: AlgorithmKind) -> f64 {
    let of_seed = |seed| problem.share(&search::search(problem, algorithm, seed, 100));
    (0..5).map(of_seed).sum::<f64>() / 5.0
}

/// 4,096 networks: accuracy saturates in depth and width, one operator goes badly with another, and some are lucky.
fn table() -> Problem {
    let mut text = String::from("depth,width,kernel,first,second,third,max:accuracy,min:latency\n");
    for number in 0..4_096_u32 {
        let at: [f64; 6] = std::array::from_fn(|gene| f64::from(number >> (2 * gene) & 3));
        let [depth, width, kernel, first, second, third] = at;
        let capacity = (depth + 1.0) * (width + 1.5) * (1.0 + 0.2 * kernel);
        let clash = if first == 1.0 && second != 2.0 { 0.08 } else { 0.0 };
        let luck = f64::from(number.wrapping_mul(2_654_435_761) >> 20) / 4_096.0;
        let operators = 0.02 * (first - 2.0).abs() + 0.03 * (third - 1.0).powi(2);
        let accuracy = 1.0 - 0.5 / capacity.sqrt() - clash - operators + 0.02 * luck;
        let latency = capacity * (1.0 + 0.3 * first + 0.1 * second * third) + 0.5 * luck;
        let label = |gene: f64| ["a", "b", "c", "d"][gene as usize];
        let (first, second, third) = (label(first), label(second), label(third));
        let line = writeln!(text, "{depth},{width},{kernel},{first},{second},{third},{accuracy},{latency}");
        line.expect("a string can be written to");
    }
    Problem::table("synthetic", &text, &[]).expect("a table")
}

fn guided_is_best(problem: &Problem) {
    let guided = share(problem, AlgorithmKind::Guided);
    for other in [AlgorithmKind::Random, AlgorithmKind::Nsga2] {
        let share = share(problem, other);
        assert!(guided > share, "{}: guided {guided}, {other} {share}", problem.name);
    }
}

#[test]
fn guided_finds_more_of_a_formula_than_others() {
    guided_is_best(&Problem::formula("zdt1").unwrap());
}

#[test]
fn guided_finds_more_of_a_table_than_others() {
    let problem = table();
    guided_is_best(&problem);
    assert!(share(&problem, AlgorithmKind::Guided) > 0.97);
}

#[test]
fn the_best_candidates_have_the_whole_hypervolume() {
    let problem = Problem::formula("zdt1").unwrap();
    let front: Vec<Vec<f64>> =
        (0..21).map(f64::from).map(|step| vec![step / 20.0, 1.0 - (step / 20.0).sqrt()]).collect();
    assert!((problem.share(&front) - 1.0).abs() < 1e-12);
    assert!(problem.share(&front[..5]) < 0.9);
    let table = "op,width,max:accuracy,min:size\na,1,0.5,1\nb,1,0.4,2\na,2,0.6,4\n";
    let problem = Problem::table("small", table, &["accuracy".to_owned()]).unwrap();
    assert!((problem.share(&[vec![0.6]]) - 1.0).abs() < 1e-12);
    assert!((problem.share(&[vec![0.5]]) - 0.6 / 1.1).abs() < 1e-12);
}
