//! The description of the API against the routes, and against the answers of a real run.

use std::collections::BTreeSet;

use millstream_dash::Options;
use serde_json::Value;

use crate::stores;
use crate::support::over;

const ROUTES: &str = include_str!("../../src/api/mod.rs");

/// Returns each route with its method, as the source names them.
fn routes() -> BTreeSet<String> {
    let table = ROUTES.split("fn api()").nth(1).unwrap().split("\n}\n").next().unwrap();
    let mut found = BTreeSet::new();
    for route in table.split(".route(").skip(1) {
        let path = route.split('"').nth(1).unwrap();
        for method in ["get", "post", "delete"] {
            let is_called = route.contains(&format!(" {method}(")) || route.contains(&format!(").{method}("));
            if is_called {
                found.insert(format!("{method} {path}"));
            }
        }
    }
    found
}

#[tokio::test]
async fn every_route_is_described_and_every_described_route_exists() {
    let store = stores::all().await.remove(0);
    let dash = over(store.admin.clone(), Options::default()).await;
    let description = dash.api("openapi.json").await;
    let paths = description["paths"].as_object().unwrap();
    let described = paths.iter().flat_map(|(path, methods)| {
        methods.as_object().unwrap().keys().map(move |method| format!("{method} {path}"))
    });
    assert_eq!(routes(), described.collect());
    assert!(routes().len() > 40);
}

#[tokio::test]
async fn answers_have_the_described_fields() {
    for store in stores::all().await {
        store.fill().await;
        let dash = over(store.admin.clone(), Options::default()).await;
        dash.row("billing", 1).await;
        let description = dash.api("openapi.json").await;
        let id =
            dash.api("entries?stream=orders&count=1").await["items"][0]["id"].as_str().unwrap().to_owned();
        let mut checked = 0;
        for (path, methods) in description["paths"].as_object().unwrap() {
            let content = &methods["get"]["responses"]["200"]["content"];
            let schema = &content["application/json"]["schema"];
            if schema.is_null() {
                continue;
            }
            let names = methods["get"]["parameters"].as_array().cloned().unwrap_or_default();
            let required = names.iter().filter(|name| name["required"] == true);
            let query: Vec<String> = required
                .map(|name| match name["name"].as_str().unwrap() {
                    "stream" => "stream=orders".to_owned(),
                    "group" => "group=billing".to_owned(),
                    "id" => format!("id={id}"),
                    other => panic!("{path} requires {other}"),
                })
                .collect();
            let reply = dash.get(&format!("/api/v1{path}?{}", query.join("&"))).await;
            // Not every store has a server or delays entries, and there is no job.
            if reply.status == 200 {
                check(path, &description, schema, &reply.json());
                checked += 1;
            } else {
                assert!(
                    ["/slowlog", "/clients", "/delayed", "/job"].contains(&path.as_str()),
                    "{path}: {reply:?}"
                );
                check(path, &description, &description["components"]["schemas"]["Problem"], &reply.json());
            }
        }
        assert!(checked > 12, "{checked}");
    }
}

/// Checks that a value has the fields that its schema requires.
fn check(path: &str, description: &Value, schema: &Value, value: &Value) {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap();
        return check(path, description, &description["components"]["schemas"][name], value);
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        assert!(value.get(name.as_str().unwrap()).is_some(), "{path} lacks {name}: {value}");
    }
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(value) = value.get(name).filter(|value| !value.is_null()) {
            check(path, description, schema, value);
        }
    }
    for item in value.as_array().into_iter().flatten().filter(|_| !schema["items"].is_null()) {
        check(path, description, &schema["items"], item);
    }
}
