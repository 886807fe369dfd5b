//! Trials that are programs.

use super::place::{Place, ended, next, order, shell};
use crate::TrialOrder;
use phalanx_jobs::Outcome;

fn wanting(values: &[&str], order: TrialOrder) -> TrialOrder {
    TrialOrder { values: values.iter().map(|name| (*name).to_owned()).collect(), ..order }
}

#[tokio::test]
async fn a_program_finds_its_genes_and_goes_on_from_its_checkpoint() {
    let place = Place::new().await;
    let _node = place.node("one").await;
    let mut updates = place.client.updates();
    let script = r#"
        grep -q '"lr": "0.1"' "$PHALANX_TRIAL" || exit 9
        before=$(cat "$PHALANX_CHECKPOINT_DIR/count" 2>/dev/null || echo 0)
        echo "{\"epoch\": $PHALANX_FROM, \"score\": $before}"
        echo $((before + PHALANX_GENE_WIDTH_0)) > "$PHALANX_CHECKPOINT_DIR/count"
        echo "training to $PHALANX_BUDGET"
        echo "{\"epoch\": $PHALANX_BUDGET, \"score\": $(cat "$PHALANX_CHECKPOINT_DIR/count"), \"loss\": NaN}"
    "#;
    let work = shell(script, &[("lr", "0.1"), ("width.0", "32")]);
    let dir = place.run_dir(1);
    let first = wanting(&["score", "loss", "seconds"], order(1, work.clone(), [0.0, 1.0, 2.0]));
    let result = place.client.take(&place.solve(&first, None).await, &dir).unwrap();
    assert_eq!(result.values["score"], 32.0);
    assert!(result.values["loss"].is_nan(), "what is no number stays none");
    assert!(result.values["seconds"] > 0.0);
    assert_eq!(result.curve.iter().map(|point| point.budget).collect::<Vec<_>>(), [0.0, 1.0]);
    let second = wanting(&["score"], order(1, work, [1.0, 2.0, 2.0]));
    let result = place.client.take(&place.solve(&second, Some(&dir)).await, &dir).unwrap();
    assert_eq!(result.values["score"], 64.0);
    let mut heard = Vec::new();
    while heard.len() < 6 {
        heard.push(next(&mut updates).await.budget);
    }
    assert_eq!(heard, [0.0, 0.0, 1.0, 1.0, 1.0, 2.0]);
}

#[tokio::test]
async fn a_program_may_write_its_results_to_a_file() {
    let place = Place::new().await;
    let _node = place.node("one").await;
    let script = r#"
        echo '{"score": 1}'
        echo '{"epoch": 1, "score": 2}' >> "$PHALANX_RESULT"
        printf '{"epoch": 2, "score": 3}' >> "$PHALANX_RESULT"
    "#;
    let dir = place.run_dir(1);
    let first = wanting(&["score"], order(1, shell(script, &[]), [0.0, 2.0, 4.0]));
    let result = place.client.take(&place.solve(&first, None).await, &dir).unwrap();
    assert_eq!((result.values["score"], result.curve.len()), (3.0, 2));
    // What it wrote before is not read again.
    let second = wanting(&["score"], order(1, shell("echo '{\"score\": 5}'", &[]), [2.0, 4.0, 4.0]));
    let result = place.client.take(&place.solve(&second, Some(&dir)).await, &dir).unwrap();
    assert_eq!((result.values["score"], result.curve.len()), (5.0, 1));
}

#[tokio::test]
async fn a_program_that_fails_or_says_nothing_fails_its_trial_with_a_reason() {
    let place = Place::new().await;
    let _node = place.node("one").await;
    let budget = [0.0, 1.0, 1.0];
    for (script, why) in [
        ("echo first >&2; echo no such layer >&2; exit 3", "no such layer"),
        ("true", "without a result"),
        ("echo score 3", "without a result"),
        ("echo '{\"other\": 3}'", "gave no score; its last result has other"),
        ("kill -9 $$", "signal: 9"),
    ] {
        let failure = place.failure(&wanting(&["score"], order(1, shell(script, &[]), budget))).await;
        assert!(failure.contains(why), "{failure:?} does not say {why:?}");
    }
}

#[tokio::test]
async fn a_large_run_directory_comes_back_and_goes_out_again() {
    let place = Place::new().await;
    let _node = place.node("one").await;
    let script = r#"
        large="$PHALANX_CHECKPOINT_DIR/model"
        echo "{\"before\": $(cat "$large" 2>/dev/null | wc -c)}"
        head -c 100000000 /dev/zero > "$large"
    "#;
    let dir = place.run_dir(1);
    for (from, to, before) in [(0.0, 1.0, 0.0), (1.0, 2.0, 1e8)] {
        let order = wanting(&["before"], order(1, shell(script, &[]), [from, to, 2.0]));
        let solution = place.solve(&order, (from > 0.0).then_some(dir.as_path())).await;
        let result = place.client.take(&solution, &dir).unwrap();
        assert_eq!(result.values["before"], before);
    }
    assert_eq!(std::fs::metadata(dir.join("checkpoint/model")).unwrap().len(), 100_000_000);
}

#[tokio::test]
async fn a_cancelled_program_is_killed_with_its_children() {
    let place = Place::new().await;
    let _node = place.node("one").await;
    let mut updates = place.client.updates();
    // The child would hold the output open.
    let work = shell("sleep 1000 & echo '{\"epoch\": 0.5, \"score\": 1}'; wait", &[]);
    let job = place.submit(&order(1, work, [0.0, 1.0, 1.0]), None).await;
    while next(&mut updates).await.values.is_empty() {}
    assert!(place.client.cancel(job.id()).await.unwrap());
    assert_eq!(ended(job).await, Outcome::Cancelled);
    let after = wanting(&["score"], order(2, shell("echo '{\"score\": 1}'", &[]), [0.0, 1.0, 1.0]));
    place.solve(&after, None).await;
}
