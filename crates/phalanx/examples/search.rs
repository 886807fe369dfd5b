// Searches with a function of the program: which shape of a box holds much and takes little cardboard?

use phalanx::search::{
    Activity, AlgorithmKind, AlgorithmSettings, Candidates, Choice, Described, Gene, Genes, Goal, Objective,
    SearchConfig, Space, make, search,
};
use std::collections::BTreeMap;

/// Names boxes; nothing else is known of them beforehand.
struct Boxes(Space);

impl Candidates for Boxes {
    fn describe(&self, genes: &Genes) -> Result<Described, String> {
        let archid = self.0.archid(genes);
        Ok(Described { model: archid.clone(), archid, known: BTreeMap::new() })
    }
}

#[expect(clippy::print_stdout, reason = "an example shows what it does")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let side = |name: &str| Gene {
        name: name.to_owned(),
        choices: (1..=20).map(|n| Choice { label: n.to_string(), number: Some(f64::from(n)) }).collect(),
        activity: Activity::Always,
    };
    let space = Space::new(vec![side("width"), side("depth"), side("height")])?;
    let objective = |name: &str, goal| Objective { name: name.to_owned(), goal, cheap: false };
    let config = SearchConfig {
        trials: 60,
        objectives: vec![objective("volume", Goal::Max), objective("cardboard", Goal::Min)],
        ..SearchConfig::default()
    };
    let algorithm = make(AlgorithmKind::Guided, &AlgorithmSettings::default());
    let boxes = Box::new(Boxes(space.clone()));
    let found = search(config, space, algorithm, boxes, |genes, _budget| {
        let [width, depth, height] = [0, 1, 2].map(|side| f64::from(genes.0[side]) + 1.0);
        let volume = width * depth * height;
        let cardboard = 2.0 * (width * depth + depth * height + width * height);
        Ok(BTreeMap::from([("volume".to_owned(), volume), ("cardboard".to_owned(), cardboard)]))
    });
    let front = found.front();
    println!("{} of {} boxes are worth making:", front.len(), found.trials().len());
    for trial in &front {
        println!("  {}", found.trials()[trial].archid);
    }
    assert_eq!(found.trials().len(), 60);
    // Large boxes and small ones: neither is better than the other.
    assert!(front.len() > 5, "{front:?}");
    Ok(())
}
