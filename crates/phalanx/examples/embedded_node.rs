// A program that is a node: it solves jobs with a handler of its own and takes part in training.

use phalanx::jobs::{HandlerError, Handlers, JobContext, JobSpec, MainNode, MainOptions, Outcome, Parcel};
use phalanx::nodes::{Domain, Node, NodeKind, machine, private_domain};

fn shout(job: &JobContext) -> Result<Parcel, HandlerError> {
    let text = String::from_utf8_lossy(&job.payload().bytes);
    Ok(Parcel::from_bytes(format!("{}!", text.to_uppercase())))
}

#[expect(clippy::print_stdout, reason = "an example shows what it does")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // `Domain::new("lab")?.key_file("lab.key")?` joins a domain of several machines.
    let domain = Domain::named(private_domain()?);
    let mut config = domain.fabric("mine", NodeKind::Computing);
    config.resources = machine();
    let node = Node::start(config, Handlers::new().with("shout", shout)).await?;
    let stopper = node.stopper();
    let working = tokio::spawn(node.run());

    let main = MainNode::start(domain.fabric("main", NodeKind::Main), MainOptions::default()).await?;
    let job = main.submit(JobSpec::new("shout", Parcel::from_bytes("hold the line"))).await?;
    let Outcome::Solved(solution) = job.await? else { return Err("the job was not solved".into()) };
    println!("{}", String::from_utf8_lossy(&solution.bytes));
    assert_eq!(&solution.bytes[..], b"HOLD THE LINE!");

    main.shutdown().await;
    stopper.drain();
    working.await??;
    Ok(())
}
