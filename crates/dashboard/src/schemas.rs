//! The forms of all answers, as JSON schemas. A test compares real answers with them.

use serde_json::{Map, Value, json};

/// An object that has all of these properties and no others.
fn object(properties: &[(&str, Value)]) -> Value {
    let required: Vec<&str> = properties.iter().map(|(name, _)| *name).collect();
    let properties: Map<String, Value> =
        properties.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({ "type": "object", "required": required, "properties": properties, "additionalProperties": false })
}

/// The same, but properties may be left out.
fn partial(properties: &[(&str, Value)]) -> Value {
    let mut schema = object(properties);
    schema["required"] = json!([]);
    schema
}

fn of(kind: &str) -> Value {
    json!({ "type": kind })
}

fn maybe(kind: &str) -> Value {
    json!({ "type": [kind, "null"] })
}

fn list(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

fn map(values: Value) -> Value {
    json!({ "type": "object", "additionalProperties": values })
}

fn named(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

/// All schemas by name.
pub(crate) fn schemas() -> Value {
    let mut all = Map::new();
    all.extend(of_runs());
    all.extend(of_records());
    all.extend(of_domain());
    all.extend(of_stores());
    all.extend(of_searches());
    Value::Object(all)
}

type Named = Vec<(String, Value)>;

fn of_runs() -> Named {
    let (text, int) = (|| of("string"), || of("integer"));
    let all = [
        ("Error", object(&[("error", text())])),
        (
            "About",
            object(&[
                ("version", text()),
                ("directory", text()),
                ("domain", maybe("string")),
                ("one_run", maybe("string")),
                ("note", maybe("string")),
                ("resumes", of("boolean")),
                ("control", of("boolean")),
            ]),
        ),
        (
            "RunSummary",
            object(&[
                ("id", text()),
                ("name", text()),
                ("elsewhere", maybe("string")),
                ("kind", text()),
                ("state", text()),
                ("reason", maybe("string")),
                ("waiting", maybe("string")),
                ("model", text()),
                ("started_ms", maybe("integer")),
                ("ended_ms", maybe("integer")),
                ("wall_s", of("number")),
                ("steps", int()),
                ("total_steps", maybe("integer")),
                ("last", map(of("number"))),
                ("tags", map(text())),
            ]),
        ),
        ("Runs", object(&[("total", int()), ("runs", list(named("RunSummary"))), ("note", maybe("string"))])),
        (
            "Run",
            object(&[
                ("run", named("RunSummary")),
                ("notes", list(object(&[("unix_ms", int()), ("text", text())]))),
                ("position", text()),
                ("resume_failed", maybe("string")),
            ]),
        ),
        ("Nothing", partial(&[])),
        ("Process", object(&[("pid", int())])),
        ("Annotation", partial(&[("set", map(text())), ("remove", text()), ("note", text())])),
        (
            "Config",
            object(&[("values", list(object(&[("key", text()), ("value", text()), ("source", text())])))]),
        ),
        (
            "Checkpoints",
            object(&[(
                "checkpoints",
                list(object(&[
                    ("step", int()),
                    ("pass", maybe("integer")),
                    ("loss", maybe("number")),
                    ("val_loss", maybe("number")),
                    ("val_acc", maybe("number")),
                    ("bytes", int()),
                    ("files", list(text())),
                ])),
            )]),
        ),
        (
            "Files",
            object(&[(
                "files",
                list(object(&[("path", text()), ("bytes", int()), ("modified_ms", maybe("integer"))])),
            )]),
        ),
        ("Description", json!({ "type": "object" })),
    ];
    all.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

fn of_records() -> Named {
    let (text, int) = (|| of("string"), || of("integer"));
    let numbers = || list(maybe("number"));
    let all = [
        (
            "SeriesList",
            object(&[(
                "series",
                list(object(&[
                    ("name", text()),
                    ("points", int()),
                    ("last", maybe("number")),
                    ("min", maybe("number")),
                    ("max", maybe("number")),
                ])),
            )]),
        ),
        (
            "Curve",
            object(&[
                ("name", text()),
                ("points", int()),
                ("step", list(int())),
                ("unix_ms", list(maybe("integer"))),
                ("min", numbers()),
                ("max", numbers()),
                ("mean", numbers()),
                ("last", numbers()),
                ("count", list(int())),
            ]),
        ),
        ("Curves", object(&[("curves", list(named("Curve"))), ("position", text())])),
        ("Event", object(&[("seq", int()), ("unix_ms", int()), ("event", text()), ("value", json!({}))])),
        ("Events", object(&[("total", int()), ("events", list(named("Event"))), ("position", text())])),
        ("Formation", json!({ "type": "object", "required": ["epochs"] })),
        (
            "Update",
            partial(&[
                ("reload", of("boolean")),
                ("runs", list(named("RunSummary"))),
                ("run", named("RunUpdate")),
                ("domain", named("Domain")),
                ("jobs", named("Jobs")),
                ("stores", list(named("Store"))),
                ("searches", list(text())),
            ]),
        ),
        (
            "RunUpdate",
            partial(&[
                ("id", text()),
                ("position", text()),
                ("reload", of("boolean")),
                (
                    "points",
                    list(object(&[
                        ("step", int()),
                        ("unix_ms", maybe("integer")),
                        ("values", map(maybe("number"))),
                    ])),
                ),
                ("events", list(named("Event"))),
                ("formation", named("Formation")),
            ]),
        ),
    ];
    all.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

fn of_domain() -> Named {
    let (text, int) = (|| of("string"), || of("integer"));
    let part = object(&[
        ("kind", text()),
        ("text", text()),
        ("driver", maybe("string")),
        ("cores", int()),
        ("memory_bytes", int()),
    ]);
    let node = object(&[
        ("id", text()),
        ("kind", text()),
        ("state", text()),
        ("why", maybe("string")),
        ("cores", int()),
        ("memory_bytes", int()),
        ("host", maybe("string")),
        ("host_cores", maybe("integer")),
        ("speed_gflops", maybe("number")),
        ("address", text()),
        ("jobs_running", int()),
        ("jobs_done", int()),
        ("uses", list(part)),
        ("since_ms", int()),
        ("handles", list(text())),
        ("serves", list(text())),
        ("store", maybe("string")),
    ]);
    let change = object(&[("unix_ms", int()), ("node", text()), ("event", text()), ("why", maybe("string"))]);
    let job = object(&[
        ("job", text()),
        ("main", text()),
        ("kind", text()),
        ("state", text()),
        ("why", text()),
        ("node", maybe("string")),
        ("progress", maybe("number")),
        ("priority", int()),
        ("attempts", int()),
        ("age_ms", int()),
    ]);
    let past = object(&[
        ("job", text()),
        ("kind", text()),
        ("state", text()),
        ("why", text()),
        ("node", maybe("string")),
        ("attempts", int()),
        ("submitted_ms", maybe("integer")),
        ("ended_ms", maybe("integer")),
    ]);
    let queue = object(&[("kind", text()), ("state", text()), ("why", text()), ("jobs", int())]);
    let all = [
        ("Domain", object(&[("domain", maybe("string")), ("nodes", list(node)), ("events", list(change))])),
        (
            "Jobs",
            object(&[
                ("jobs", list(job)),
                ("past", list(past)),
                ("queues", list(queue)),
                ("done", int()),
                ("more", of("boolean")),
            ]),
        ),
        ("JobName", object(&[("job", text())])),
        ("Cancelled", object(&[("cancelled", of("boolean"))])),
    ];
    all.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

fn of_stores() -> Named {
    let (text, int) = (|| of("string"), || of("integer"));
    let mut summary = object(&[
        ("address", text()),
        ("version", text()),
        ("nodes", int()),
        ("uptime_seconds", int()),
        ("keys", int()),
        ("used_bytes", int()),
        ("resident_bytes", int()),
        ("spilled_bytes", int()),
        ("persisted_bytes", int()),
        ("memory_bytes", int()),
        ("refuses_writes", maybe("string")),
        ("clients", int()),
        ("commands", int()),
        ("refused_for_memory", int()),
    ]);
    summary["type"] = json!(["object", "null"]);
    let producer = object(&[("id", text()), ("state", text()), ("uploads", int()), ("held", int())]);
    let trainer = object(&[("id", text()), ("rank", int()), ("uncommitted", int())]);
    let reader = object(&[
        ("id", text()),
        ("pass", maybe("integer")),
        ("step", int()),
        ("steps", int()),
        ("lag", int()),
        ("ended", of("boolean")),
        ("trainers", list(trainer)),
    ]);
    let stream = object(&[
        ("name", text()),
        ("ended", of("boolean")),
        ("samples", int()),
        ("uploads", int()),
        ("samples_per_s", of("number")),
        ("stored_bytes", int()),
        ("budget_bytes", maybe("integer")),
        ("pending_datasets", int()),
        ("producers", list(producer)),
        ("readers", list(reader)),
        ("waits", list(object(&[("client", text()), ("why", text())]))),
        ("reports", list(text())),
    ]);
    let store = object(&[
        ("address", text()),
        ("why", maybe("string")),
        ("summary", summary),
        ("streams", list(stream)),
    ]);
    let all = [("Store", store), ("Stores", object(&[("stores", list(named("Store")))]))];
    all.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

fn of_searches() -> Named {
    let (text, int, number) = (|| of("string"), || of("integer"), || of("number"));
    let summary = object(&[
        ("id", text()),
        ("name", text()),
        ("algorithm", text()),
        ("state", text()),
        ("why", maybe("string")),
        ("trials", int()),
        ("proposed", int()),
        ("with_results", int()),
        ("front", int()),
        ("started_ms", int()),
        ("last_ms", maybe("integer")),
    ]);
    let trial = object(&[
        ("trial", int()),
        ("archid", text()),
        ("state", text()),
        ("why", maybe("string")),
        ("node", maybe("string")),
        ("rung", maybe("integer")),
        ("budget", number()),
        ("full", of("boolean")),
        ("parents", list(int())),
        ("objectives", list(maybe("number"))),
        ("values", map(maybe("number"))),
        ("seconds", number()),
        ("iteration", maybe("integer")),
        ("run", maybe("string")),
    ]);
    let objective = object(&[("name", text()), ("goal", text()), ("cheap", of("boolean"))]);
    let covered = object(&[("results", int()), ("hours", number()), ("share", number()), ("full", number())]);
    let search = object(&[
        ("summary", named("SearchSummary")),
        ("objectives", list(objective)),
        ("rungs", list(number())),
        ("budget_unit", text()),
        ("events", int()),
        ("front", list(int())),
        ("compared", text()),
        ("counts", map(int())),
        ("hypervolume", list(covered)),
        ("trials", list(trial)),
    ]);
    let searches = object(&[("searches", list(named("SearchSummary")))]);
    let all = [("SearchSummary", summary), ("Search", search), ("Searches", searches)];
    all.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}
