//! The description of the API (OpenAPI 3.1), made from the table of endpoints.

use crate::endpoints::{Answer, ENDPOINTS, Endpoint, Method, Parameter};
use crate::schemas::schemas;
use serde_json::{Map, Value, json};

/// The whole description.
pub(crate) fn description() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for endpoint in ENDPOINTS {
        let path = endpoint.path.replace("{*", "{");
        let method = match endpoint.method {
            Method::Get => "get",
            Method::Post => "post",
        };
        let item = paths.entry(path).or_insert_with(|| json!({}));
        item[method] = operation(endpoint);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Phalanx dashboard",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "What the dashboard knows about runs, nodes and jobs. A request that changes something \
                            needs the headers Origin and X-Phalanx: 1.",
        },
        "paths": paths,
        "components": { "schemas": schemas() },
    })
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

fn operation(endpoint: &Endpoint) -> Value {
    let in_path = endpoint.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let in_path = in_path.map(|name| {
        let name = name.trim_start_matches('*');
        json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } })
    });
    let of_query = |parameter: &Parameter| {
        let kind = if parameter.number { "integer" } else { "string" };
        json!({
            "name": parameter.name,
            "in": "query",
            "required": false,
            "description": parameter.about,
            "schema": { "type": kind },
        })
    };
    let parameters: Vec<Value> = in_path.chain(endpoint.query.iter().map(of_query)).collect();
    let content = match endpoint.answer {
        Answer::Json(schema) => json!({ "application/json": { "schema": reference(schema) } }),
        Answer::Events(schema) => json!({ "text/event-stream": { "schema": reference(schema) } }),
        Answer::Bytes => json!({ "application/octet-stream": {} }),
    };
    let error = json!({
        "description": "Why it cannot be answered.",
        "content": { "application/json": { "schema": reference("Error") } },
    });
    let mut operation = json!({
        "summary": endpoint.about,
        "parameters": parameters,
        "responses": { "200": { "description": "The answer.", "content": content }, "default": error },
    });
    if let Some(schema) = endpoint.body {
        operation["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": reference(schema) } } });
    }
    operation
}
