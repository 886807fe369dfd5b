use super::{keyed, with};
use phalanx_testkit::{Bridge, Namespace, eventually, is_alive};

const LAB: [&str; 5] = ["--domain", "lab", "--no-mdns", "--heartbeat", "1s"];
const SEED: &str = "10.73.0.1:7000";
/// Connects to the place where ranks meet.
const REACHES: &str = "at=$PHALANX_RENDEZVOUS; exec 3<>/dev/tcp/${at%:*}/${at##*:} && echo reached $at by $$";

#[test]
fn ranks_of_two_hosts_reach_the_launcher_and_end_when_they_lose_it() {
    let sandbox = keyed();
    let bridge = Bridge::new();
    let spaces = [Namespace::new(), Namespace::new()];
    let cables = [0, 1].map(|i| bridge.attach(&spaces[i], &format!("10.73.0.{}/24", i + 1)));
    let [a, b] = [0, 1].map(|i| sandbox.host(["a", "b"][i], Some(&spaces[i])));
    let _first = a.node(&with(&["--name", "a", "--cores", "1", "--allow-exec", "--bind", SEED], &LAB));
    let second = b.node(&with(&["--name", "b", "--cores", "1", "--allow-exec", "--connect", SEED], &LAB));

    let launch = with(&["launch", "-n", "2", "--nodes", "2", "--connect", SEED], &LAB);
    let script = format!("{REACHES}; sleep 600");
    let mut launcher = a.start(&with(&launch, &["--", "bash", "-c", &script]));
    let mut ranks = [launcher.line(), launcher.line()];
    ranks.sort_unstable();
    let process = |rank: usize, line: &str| -> u32 {
        // Also the rank beside the launcher meets the other by the address of the network.
        let begin = format!("[{rank}] reached 10.73.0.1:");
        assert!(line.starts_with(&begin), "{line}");
        line.rsplit_once(" by ").unwrap().1.parse().unwrap()
    };
    let processes = [process(0, &ranks[0]), process(1, &ranks[1])];

    cables[1].cut();
    let (status, _) = launcher.finish();
    let said = launcher.stderr();
    assert_eq!(status.code(), Some(3), "{said}");
    assert!(said.contains(&format!("with node {}", second.id)), "{said}");
    for process in processes {
        eventually("the rank ends", || (!is_alive(process)).then_some(()));
    }
}
