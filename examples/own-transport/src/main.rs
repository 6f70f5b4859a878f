//! `own-transport SCENARIO [PATH=VALUE]…`: runs a scenario with the transports of this crate and prints its summary.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use windtunnel_scenario::api::{Failure, RunRequest, run};
use windtunnel_scenario::table::Discard;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(file) = arguments.next() else {
        eprintln!("usage: own-transport SCENARIO [PATH=VALUE]…");
        return ExitCode::from(2);
    };
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("error: `{file}`: {error}");
            return ExitCode::from(2);
        }
    };
    let pair = |text: String| text.split_once('=').map(|(path, value)| (path.to_owned(), value.to_owned()));
    let request = RunRequest {
        text,
        base: Path::new(&file).parent().map_or_else(PathBuf::new, Path::to_owned),
        source: file,
        overrides: arguments.filter_map(pair).collect(),
        modules: own_transport::modules(),
        ..RunRequest::default()
    };
    match run(&request, &mut Discard, &mut Discard) {
        Ok(summary) => {
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Err(Failure::Input(error)) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
        Err(Failure::Run(_, message)) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
        Err(Failure::Cluster(error)) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
