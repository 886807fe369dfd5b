//! The table of the API. Routes, their description and their tests are made from it.

use crate::api;
use crate::app::App;
use crate::error::ApiError;
use crate::searches;
use serde_json::Value;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// What a request gives.
#[derive(Debug, Clone, Default)]
pub(crate) struct Call {
    /// Values of `{name}` in the path, and of the query.
    pub(crate) values: BTreeMap<String, String>,
    pub(crate) body: Value,
}

impl Call {
    pub(crate) fn value(&self, name: &'static str) -> Option<&str> {
        self.values.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// A number of the query.
    pub(crate) fn number(&self, name: &'static str) -> Result<Option<u64>, ApiError> {
        let wrong = |value: &str| ApiError::Parameter {
            name,
            value: value.to_owned(),
            expected: "a whole number is expected",
        };
        self.value(name).map(|value| value.parse().map_err(|_text| wrong(value))).transpose()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Post,
}

/// A value that a request may give.
#[derive(Debug)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) number: bool,
}

/// What is answered.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Answer {
    /// JSON of a schema.
    Json(&'static str),
    /// Server-sent events whose data have a schema.
    Events(&'static str),
    Bytes,
}

type Blocking = fn(&App, &Call) -> Result<Value, ApiError>;
type Later = Pin<Box<dyn Future<Output = Result<Value, ApiError>> + Send>>;

/// What makes the answer.
#[derive(Clone, Copy)]
pub(crate) enum Handle {
    /// Reads files, on a thread for that.
    Files(Blocking),
    /// Asks nodes.
    Nodes(fn(Arc<App>, Call) -> Later),
    Live,
    Download,
}

/// A row of the table.
pub(crate) struct Endpoint {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) about: &'static str,
    pub(crate) query: &'static [Parameter],
    pub(crate) body: Option<&'static str>,
    pub(crate) answer: Answer,
    pub(crate) handle: Handle,
}

const fn text(name: &'static str, about: &'static str) -> Parameter {
    Parameter { name, about, number: false }
}

const fn number(name: &'static str, about: &'static str) -> Parameter {
    Parameter { name, about, number: true }
}

const fn get(
    path: &'static str,
    about: &'static str,
    query: &'static [Parameter],
    schema: &'static str,
    handle: Handle,
) -> Endpoint {
    Endpoint { method: Method::Get, path, about, query, body: None, answer: Answer::Json(schema), handle }
}

const fn post(
    path: &'static str,
    about: &'static str,
    body: &'static str,
    schema: &'static str,
    handle: Handle,
) -> Endpoint {
    let answer = Answer::Json(schema);
    Endpoint { method: Method::Post, path, about, query: &[], body: Some(body), answer, handle }
}

/// All of the API.
pub(crate) const ENDPOINTS: &[Endpoint] = &[
    get("/api/v1/about", "What this server is and may do.", &[], "About", Handle::Files(api::about)),
    get(
        "/api/v1/runs",
        "Lists runs.",
        &[
            text(
                "q",
                "Words that name, model, state or tags must have, or a filter: val_acc > 0.97 and model ~ digits.",
            ),
            text("sort", "A column, with - in front for the greatest first; -started when not given."),
            number("limit", "The most runs to list; 200 when not given."),
            number("offset", "The number of runs to leave out first."),
        ],
        "Runs",
        Handle::Files(api::runs),
    ),
    get("/api/v1/runs/{id}", "A run.", &[], "Run", Handle::Files(api::run)),
    post(
        "/api/v1/runs/{id}/annotations",
        "Sets or removes a tag of a run, or adds a note; needs --control.",
        "Annotation",
        "Run",
        Handle::Files(api::annotate),
    ),
    post(
        "/api/v1/runs/{id}/stop",
        "Stops a run of this host, as Ctrl-C does; needs --control.",
        "Nothing",
        "Process",
        Handle::Files(api::stop),
    ),
    post(
        "/api/v1/runs/{id}/resume",
        "Resumes a run of this host in a process of its own; needs --control.",
        "Nothing",
        "Process",
        Handle::Files(api::resume),
    ),
    get(
        "/api/v1/runs/{id}/series",
        "The names under which a run recorded values.",
        &[],
        "SeriesList",
        Handle::Files(api::series),
    ),
    get(
        "/api/v1/runs/{id}/curves",
        "Curves of a run, reduced to buckets with the least, greatest and mean value of each.",
        &[
            text("series", "Names, separated by commas, or a JSON array of them."),
            text("x", "What from and to are: step or time (milliseconds since 1970)."),
            number("from", "The first step or time."),
            number("to", "The last step or time."),
            number("buckets", "How many points a curve has at most; 600 when not given."),
        ],
        "Curves",
        Handle::Files(api::curves),
    ),
    get(
        "/api/v1/runs/{id}/events",
        "What happened to a run, oldest first.",
        &[
            number("after", "The number of events to leave out first."),
            number("limit", "The most events to list; 1000 when not given."),
        ],
        "Events",
        Handle::Files(api::events),
    ),
    get(
        "/api/v1/runs/{id}/formation",
        "Which node held which part of the model, from which step on.",
        &[],
        "Formation",
        Handle::Files(api::formation),
    ),
    get(
        "/api/v1/runs/{id}/config",
        "Every value of the run file, with its source.",
        &[],
        "Config",
        Handle::Files(api::config),
    ),
    get(
        "/api/v1/runs/{id}/checkpoints",
        "The checkpoints of a run, oldest first.",
        &[],
        "Checkpoints",
        Handle::Files(api::checkpoints),
    ),
    get("/api/v1/runs/{id}/files", "The files of a run.", &[], "Files", Handle::Files(api::files)),
    Endpoint {
        method: Method::Get,
        path: "/api/v1/runs/{id}/files/{*path}",
        about: "A file of a run, to download.",
        query: &[],
        body: None,
        answer: Answer::Bytes,
        handle: Handle::Download,
    },
    get(
        "/api/v1/searches",
        "The searches beside the runs, the newest first.",
        &[],
        "Searches",
        Handle::Files(searches::list),
    ),
    get(
        "/api/v1/searches/{id}",
        "A search: its front, its hypervolume, its trials. A trial's run has the id SEARCH:TRIAL.",
        &[number(
            "after",
            "The events that are known: trials that changed later are listed; all when not given.",
        )],
        "Search",
        Handle::Files(searches::show),
    ),
    get("/api/v1/nodes", "The nodes of the domain.", &[], "Domain", Handle::Files(api::nodes)),
    get(
        "/api/v1/jobs",
        "The jobs of the domain.",
        &[text("all", "1 lists jobs that have ended, too: past are those of main nodes that are gone.")],
        "Jobs",
        Handle::Nodes(api::jobs),
    ),
    get(
        "/api/v1/stores",
        "The stores that are followed, with their streams: rates, lag, memory, who waits and why.",
        &[],
        "Stores",
        Handle::Files(api::stores),
    ),
    post(
        "/api/v1/jobs/cancel",
        "Cancels a job; needs --control.",
        "JobName",
        "Cancelled",
        Handle::Nodes(api::cancel),
    ),
    Endpoint {
        method: Method::Get,
        path: "/api/v1/live",
        about: "Changes as they come, at most four messages a second. A stream that breaks goes on after \
                Last-Event-ID.",
        query: &[
            text("run", "A run whose records are sent, too."),
            text("position", "The records of the run that are known: position of an answer."),
            text("jobs", "1 sends jobs, too; `unfinished` those that have not ended."),
            text("stores", "1 sends stores, too."),
            text("searches", "1 sends the ids of searches that changed, too."),
        ],
        body: None,
        answer: Answer::Events("Update"),
        handle: Handle::Live,
    },
    get("/api/v1/openapi.json", "This description.", &[], "Description", Handle::Files(api::description)),
];
