// Submits jobs and solves them with a handler of the program.

use phalanx::jobs::{HandlerError, Handlers, JobContext, JobSpec, MainNode, MainOptions, Outcome, Parcel};
use phalanx::nodes::{Domain, NodeKind, ThreadNodes, ThreadSpec, private_domain};

/// How many words a text has.
fn count_words(job: &JobContext) -> Result<Parcel, HandlerError> {
    let text = std::str::from_utf8(&job.payload().bytes);
    let text = text.map_err(|error| HandlerError::failed(error.to_string()))?;
    Ok(Parcel::from_bytes(text.split_whitespace().count().to_string()))
}

#[expect(clippy::print_stdout, reason = "an example shows what it does")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = private_domain()?;
    let spec = ThreadSpec::new(name.clone(), 2);
    // Starting nodes blocks, which a task of a runtime must not.
    let start = move || ThreadNodes::start(&spec, || Handlers::new().with("count", count_words));
    let nodes = tokio::task::spawn_blocking(start).await??;

    let main =
        MainNode::start(Domain::named(name).fabric("main", NodeKind::Main), MainOptions::default()).await?;
    let texts = ["one", "one two", "one two three"];
    let mut handles = Vec::new();
    for text in texts {
        handles.push(main.submit(JobSpec::new("count", Parcel::from_bytes(text))).await?);
    }
    for (words, handle) in (1..).zip(handles) {
        let Outcome::Solved(solution) = handle.await? else { return Err("a job was not solved".into()) };
        assert_eq!(solution.bytes, words.to_string().as_bytes());
    }
    println!("{} jobs solved", main.counts().await?.solved);
    main.shutdown().await;
    tokio::task::spawn_blocking(move || drop(nodes)).await?;
    Ok(())
}
