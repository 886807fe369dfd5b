//! Serves MLflow's tracking routes on loopback, and nothing else: `mlflow_server RUNS`. It prints its address.

use std::net::Ipv4Addr;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runs = std::env::args_os().nth(1).ok_or("the directory of runs is missing")?;
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    #[expect(clippy::print_stdout, reason = "the program that starts it reads the address")]
    {
        println!("http://{}", listener.local_addr()?);
    }
    Ok(axum::serve(listener, phalanx_mlflow::router(std::path::PathBuf::from(runs))).await?)
}
