use super::*;
use phalanx_types::Seed;

fn numbers(name: &str, choices: &[f64], activity: Activity) -> Gene {
    let choice = |number: &f64| Choice { label: number.to_string(), number: Some(*number) };
    Gene { name: name.to_owned(), choices: choices.iter().map(choice).collect(), activity }
}

fn words(name: &str, choices: &[&str], activity: Activity) -> Gene {
    let choice = |label: &&str| Choice { label: (*label).to_owned(), number: None };
    Gene { name: name.to_owned(), choices: choices.iter().map(choice).collect(), activity }
}

fn when(gene: usize, choices: &[u16]) -> Activity {
    Activity::AnyOf(vec![vec![Need { gene, choices: choices.to_vec() }]])
}

fn genes(of: &[u16]) -> Genes {
    Genes(of.to_vec())
}

/// head is a word; width exists with the dense head; act exists only with width 64.
fn nested() -> Space {
    Space::new(vec![
        words("head", &["pool", "dense"], Activity::Always),
        numbers("width", &[32.0, 64.0, 128.0], when(0, &[1])),
        words("act", &["relu", "gelu"], when(1, &[1])),
        numbers("lr", &[0.1, 0.01], Activity::Always),
    ])
    .unwrap()
}

/// A space of a few genes. Every gene may depend on any earlier ones; conditions of conditions are common.
fn random_space(dice: &mut Dice) -> Space {
    let count = 1 + dice.below(6);
    let mut made: Vec<Gene> = Vec::new();
    for index in 0..count {
        let choices: Vec<String> = (0..1 + dice.below(4)).map(|choice| choice.to_string()).collect();
        let need = |dice: &mut Dice| {
            // The gene just before, half of the time: chains become deep.
            let gene = if dice.chance(0.5) { index - 1 } else { dice.below(index) };
            let mut choices: Vec<u16> =
                (0..made[gene].choices.len() as u16).filter(|_| dice.chance(0.5)).collect();
            if choices.is_empty() {
                choices.push(made[gene].choices.len() as u16 - 1);
            }
            Need { gene, choices }
        };
        let activity = if index == 0 || dice.chance(0.3) {
            Activity::Always
        } else {
            let alternatives = 1 + dice.below(2);
            Activity::AnyOf(
                (0..alternatives).map(|_| (0..1 + dice.below(2)).map(|_| need(dice)).collect()).collect(),
            )
        };
        let labels: Vec<&str> = choices.iter().map(String::as_str).collect();
        made.push(words(&format!("g{index}"), &labels, activity));
    }
    Space::new(made).unwrap()
}

/// How deep the conditions of a space are nested.
fn depth(space: &Space) -> usize {
    let mut depths: Vec<usize> = Vec::new();
    for gene in &space.genes {
        let depth = match &gene.activity {
            Activity::Always => 0,
            Activity::AnyOf(alternatives) => {
                alternatives.iter().flatten().map(|need| depths[need.gene] + 1).max().unwrap_or(0)
            }
        };
        depths.push(depth);
    }
    depths.into_iter().max().unwrap_or(0)
}

/// Folds every combination of choices: the candidates by definition.
fn by_brute_force(space: &Space) -> BTreeSet<Genes> {
    let mut all = vec![Vec::new()];
    for gene in &space.genes {
        all = (all.iter())
            .flat_map(|prefix: &Vec<u16>| {
                (0..=gene.last()).map(move |choice| [prefix.as_slice(), &[choice]].concat())
            })
            .collect();
    }
    all.into_iter().map(|combination| space.fold(Genes(combination))).collect()
}

fn random_spaces(count: u64) -> impl Iterator<Item = (Space, Dice)> {
    (0..count).map(|number| {
        let mut dice = Dice::of(Seed(15), "space", number);
        (random_space(&mut dice), dice)
    })
}

#[test]
fn candidates_are_in_order_each_once_and_counted() {
    let mut deepest = 0;
    for (space, _) in random_spaces(300) {
        let listed: Vec<Genes> = space.candidates().collect();
        assert!(listed.is_sorted_by(|a, b| a < b), "{space:?}");
        assert_eq!(listed.iter().cloned().collect::<BTreeSet<_>>(), by_brute_force(&space), "{space:?}");
        assert_eq!(space.count(), Some(listed.len() as u128), "{space:?}");
        deepest = deepest.max(depth(&space));
    }
    assert!(deepest >= 3, "{deepest}");
}

#[test]
fn folding_is_idempotent_and_repairs_any_genes() {
    for (space, mut dice) in random_spaces(200) {
        for _ in 0..20 {
            let length = dice.below(9);
            let wild = Genes((0..length).map(|_| dice.below(6) as u16 * 13_107).collect());
            let folded = space.fold(wild.clone());
            assert!(space.contains(&folded), "{space:?} {wild:?}");
            assert_eq!(space.fold(folded.clone()), folded);
            assert_eq!(space.contains(&wild), wild == folded);
        }
    }
}

#[test]
fn every_candidate_can_be_sampled_and_nothing_else() {
    for (space, mut dice) in random_spaces(100) {
        let all: BTreeSet<Genes> = space.candidates().collect();
        // The rarest candidate has the probability of one combination.
        let combinations: usize = space.genes.iter().map(|gene| gene.choices.len()).product();
        if combinations > 64 {
            continue;
        }
        let sampled: BTreeSet<Genes> = (0..combinations * 25).map(|_| space.sample(&mut dice)).collect();
        assert_eq!(sampled, all, "{space:?}");
    }
}

#[test]
fn a_mutation_is_another_candidate_that_differs_in_as_many_genes() {
    for (space, mut dice) in random_spaces(200) {
        for changes in [0, 1, 1, 2, 3] {
            let parent = space.sample(&mut dice);
            let child = space.mutate(&parent, changes, &mut dice);
            assert!(space.contains(&child), "{space:?} {child:?}");
            let can_change = |gene: &usize| space.genes[*gene].choices.len() > 1;
            let possible = space.active(&parent).into_iter().filter(can_change).count();
            assert_eq!(child != parent, changes > 0 && possible > 0, "{space:?} {parent:?} {child:?}");
            let common = |gene: &usize| space.is_active(&parent, *gene) && space.is_active(&child, *gene);
            let differ =
                (0..space.genes.len()).filter(common).filter(|&gene| parent.0[gene] != child.0[gene]);
            let differ = differ.count();
            let all_always = space.genes.iter().all(|gene| gene.activity == Activity::Always);
            if changes <= 1 || all_always {
                assert_eq!(differ, changes.min(possible), "{space:?} {parent:?} {child:?}");
            }
        }
    }
}

#[test]
fn a_crossing_has_the_genes_of_its_parents() {
    for (space, mut dice) in random_spaces(200) {
        let (a, b) = (space.sample(&mut dice), space.sample(&mut dice));
        for _ in 0..5 {
            let child = space.crossover(&a, &b, &mut dice);
            assert!(space.contains(&child), "{space:?} {child:?}");
            for gene in space.active(&child) {
                let parents = [&a, &b].into_iter().filter(|parent| space.is_active(parent, gene));
                let choices: Vec<u16> = parents.map(|parent| parent.0[gene]).collect();
                assert!(
                    choices.is_empty() || choices.contains(&child.0[gene]),
                    "{space:?} {a:?} {b:?} {child:?}"
                );
            }
        }
        assert_eq!(space.crossover(&a, &a, &mut dice), a);
    }
}

#[test]
fn neighbours_are_all_candidates_that_differ_in_one_gene() {
    for (space, mut dice) in random_spaces(200) {
        let of = space.sample(&mut dice);
        let neighbours = space.neighbours(&of);
        let distinct: BTreeSet<&Genes> = neighbours.iter().collect();
        assert_eq!(distinct.len(), neighbours.len(), "{space:?}");
        for neighbour in &neighbours {
            assert!(space.contains(neighbour), "{space:?} {neighbour:?}");
            let common = |gene: &usize| space.is_active(&of, *gene) && space.is_active(neighbour, *gene);
            let differ =
                (0..space.genes.len()).filter(common).filter(|&gene| of.0[gene] != neighbour.0[gene]);
            assert_eq!(differ.count(), 1, "{space:?} {of:?} {neighbour:?}");
            let new = |gene: &usize| !space.is_active(&of, *gene);
            assert!((0..space.genes.len()).filter(new).all(|gene| neighbour.0[gene] == 0));
        }
        let expected: usize = space.active(&of).iter().map(|gene| space.genes[*gene].choices.len() - 1).sum();
        assert_eq!(neighbours.len(), expected);
    }
}

#[test]
fn a_nested_space_is_listed_by_hand() {
    let space = nested();
    let listed: Vec<String> = space.candidates().map(|genes| space.archid(&genes)).collect();
    let expected = [
        "(pool, -, -, 0.1)",
        "(pool, -, -, 0.01)",
        "(dense, 32, -, 0.1)",
        "(dense, 32, -, 0.01)",
        "(dense, 64, relu, 0.1)",
        "(dense, 64, relu, 0.01)",
        "(dense, 64, gelu, 0.1)",
        "(dense, 64, gelu, 0.01)",
        "(dense, 128, -, 0.1)",
        "(dense, 128, -, 0.01)",
    ];
    assert_eq!(listed, expected);
    assert_eq!(space.count(), Some(10));
    // A width without its head, and an activation with the wrong width.
    assert!(!space.contains(&genes(&[0, 1, 0, 0])));
    assert!(!space.contains(&genes(&[1, 2, 1, 0])));
    assert!(!space.contains(&genes(&[0, 0, 0])));
    assert_eq!(space.fold(genes(&[0, 1, 1, 1])), genes(&[0, 0, 0, 1]));
    assert_eq!(Space::new(Vec::new()).unwrap().candidates().count(), 1);
}

#[test]
fn differences_follow_the_order_of_numbers_and_equality_of_words() {
    let space = nested();
    let (pool, narrow, middle) = (genes(&[0, 0, 0, 0]), genes(&[1, 0, 0, 0]), genes(&[1, 1, 1, 0]));
    assert_eq!((space.is_ordered(0), space.is_ordered(1), space.is_ordered(9)), (false, true, false));
    assert_eq!([0, 1, 2, 3].map(|gene| space.mismatch(gene, &narrow, &middle)), [0.0, 0.5, 1.0, 0.0]);
    assert_eq!([0, 1, 2, 3].map(|gene| space.mismatch(gene, &pool, &narrow)), [1.0, 1.0, 0.0, 0.0]);
    // 0.1 stands before 0.01 and is the larger of both.
    assert_eq!(space.positions(&pool), [Some(0.0), None, None, Some(1.0)]);
    let encoded = space.encode(&middle);
    assert_eq!(encoded, [1.0, 64.0, 1.0, 0.1]);
    assert!(space.encode(&pool)[1].is_nan());
}

#[test]
fn a_mismatch_of_positions_is_the_mismatch() {
    for (space, mut dice) in random_spaces(100) {
        let (a, b) = (space.sample(&mut dice), space.sample(&mut dice));
        let (of_a, of_b) = (space.positions(&a), space.positions(&b));
        for gene in 0..space.genes.len() {
            let expected = space.mismatch(gene, &a, &b);
            assert!((0.0..=1.0).contains(&expected));
            assert_eq!(mismatch(space.is_ordered(gene), of_a[gene], of_b[gene]), expected);
        }
    }
}

#[test]
fn large_spaces_are_counted_without_listing() {
    let choices: Vec<f64> = (0..12).map(f64::from).collect();
    // A number of cells, and three choices in each cell that exists.
    let mut cells = vec![numbers("cells", &choices, Activity::Always)];
    for cell in 0..11 {
        let exists = when(0, &(cell + 1..12).collect::<Vec<u16>>());
        cells.push(words(&format!("cells.{cell}.op"), &["a", "b", "c"], exists));
    }
    let expected: u128 = (0..12).map(|cells| 3_u128.pow(cells)).sum();
    assert_eq!(Space::new(cells).unwrap().count(), Some(expected));
    let wide: Vec<Gene> =
        (0..36).map(|gene| numbers(&format!("g{gene}"), &choices, Activity::Always)).collect();
    assert_eq!(Space::new(wide[..35].to_vec()).unwrap().count(), Some(12_u128.pow(35)));
    assert_eq!(Space::new(wide).unwrap().count(), None, "more than a u128 holds");
}

#[test]
fn a_space_that_makes_no_sense_says_why() {
    let of = |genes: Vec<Gene>| Space::new(genes).unwrap_err().to_string();
    let head = || words("head", &["pool", "dense"], Activity::Always);
    assert_eq!(of(vec![head(), head()]), "there are two genes called `head`");
    assert_eq!(
        of(vec![words("a", &[], Activity::Always)]),
        "gene `a` has 0 choices; 1 to 65535 are possible"
    );
    assert_eq!(of(vec![words("a", &["x", "x"], Activity::Always)]), "gene `a` has the choice `x` twice");
    let not_finite = numbers("a", &[f64::NAN], Activity::Always);
    assert_eq!(of(vec![not_finite]), "gene `a` has a choice whose number is not finite: `NaN`");
    let later = vec![words("a", &["x"], when(1, &[0])), head()];
    assert_eq!(of(later), "gene `a` depends on gene 1, which is not an earlier one");
    assert_eq!(
        of(vec![head(), words("a", &["x"], when(0, &[2]))]),
        "gene `a` depends on choice 2 of `head`, which has only 2"
    );
    let never = "gene `a` never exists: its condition has no alternative, or an alternative with no choice";
    assert_eq!(of(vec![head(), words("a", &["x"], when(0, &[]))]), never);
    assert_eq!(of(vec![words("a", &["x"], Activity::AnyOf(Vec::new()))]), never);
}
