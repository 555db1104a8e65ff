//! The description of the API against the answers of a real run.

use millstream_dash::Options;
use serde_json::{Map, Value, json};

use crate::stores;
use crate::support::over;

/// Every described route exists. A route without a description cannot: one call adds both.
#[tokio::test]
async fn described_routes_exist() {
    let store = stores::all().await.remove(0);
    let dash = over(store.admin.clone(), Options::default()).await;
    let description = dash.api("openapi.json").await;
    let mut routes = 0;
    for (path, methods) in description["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let (method, path) = (method.to_uppercase(), format!("/api/v1{path}?undescribed=1"));
            let reply = dash.send(&method, &path, &dash.action_headers(), "").await;
            assert_eq!(reply.status, 400, "{method} {path}: {reply:?}");
            routes += 1;
        }
    }
    assert!(routes > 40, "{routes}");
    let named =
        |name: &str| description["components"]["schemas"][name]["properties"].as_object().unwrap().len();
    assert!(named("RowJson") > 25 && named("Status") > 15 && named("ProblemJson") > 5);
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
                check(
                    path,
                    &description,
                    &description["components"]["schemas"]["ProblemJson"],
                    &reply.json(),
                );
            }
        }
        assert!(checked > 12, "{checked}");
    }
}

/// Checks that a value has the members that its schema requires, and no others.
fn check(path: &str, description: &Value, schema: &Value, value: &Value) {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap();
        return check(path, description, &description["components"]["schemas"][name], value);
    }
    if let Some(any) = schema["anyOf"].as_array().filter(|_| !value.is_null()) {
        return check(path, description, any.iter().find(|schema| fits(schema, value)).unwrap(), value);
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        assert!(value.get(name.as_str().unwrap()).is_some(), "{path} lacks {name}: {value}");
    }
    if let Some(properties) = schema["properties"].as_object() {
        let any = &schema["additionalProperties"];
        for (name, value) in value.as_object().into_iter().flatten() {
            let schema = properties.get(name).unwrap_or(any);
            assert!(!schema.is_null(), "{path} does not describe {name}: {value}");
            check(path, description, schema, value);
        }
    }
    for item in value.as_array().into_iter().flatten().filter(|_| !schema["items"].is_null()) {
        check(path, description, &schema["items"], item);
    }
}

/// Whether a schema is for values of this kind.
fn fits(schema: &Value, value: &Value) -> bool {
    match schema["type"].as_str() {
        Some("null") => value.is_null(),
        Some("array") => schema["maxItems"].as_u64() == value.as_array().map(|items| items.len() as u64),
        _ => true,
    }
}

/// A request that is complete but for an unknown parameter or member, at any depth, is refused and changes nothing.
#[tokio::test]
async fn unknown_parameters_and_members_are_refused_by_every_route() {
    let store = stores::all().await.remove(0);
    store.fill().await;
    let dash = over(store.admin.clone(), Options::default()).await;
    dash.row("billing", 1).await;
    let description = dash.api("openapi.json").await;
    let mut checked = 0;
    for (path, methods) in description["paths"].as_object().unwrap() {
        for (method, route) in methods.as_object().unwrap() {
            let parameters = route["parameters"].as_array().cloned().unwrap_or_default();
            let query = parameters.iter().filter(|parameter| parameter["required"] == true);
            let query: String = query
                .filter_map(|parameter| parameter["name"].as_str())
                .map(|name| format!("{name}={}&", if name == "watch" { "jobs" } else { "1-1" }))
                .collect();
            let content = &route["requestBody"]["content"]["application/json"]["schema"];
            let sample = sample(content);
            let mut requests = vec![(format!("{query}undescribed=1"), sample.clone())];
            requests.extend(with_unknown_members(&sample).into_iter().map(|body| (query.clone(), body)));
            for (query, body) in requests {
                let body = if body.is_null() { String::new() } else { body.to_string() };
                let (method, path) = (method.to_uppercase(), format!("/api/v1{path}?{query}"));
                let reply = dash.send(&method, &path, &dash.action_headers(), &body).await;
                let names_it =
                    ["undescribed", "expected value"].iter().any(|text| reply.text().contains(text));
                assert!(reply.status == 400 && names_it, "{method} {path} {body}: {reply:?}");
                checked += 1;
            }
        }
    }
    assert!(checked > 70, "{checked}");
    for watch in
        ["overview?x=1", "stream?stream=a&x=1", "stream?stream=a&group=b", "tail?stream=a&x=1", "jobs?x=1"]
    {
        let path = format!("/api/v1/events?watch={}", watch.replace('?', "%3F").replace('&', "%26"));
        assert_eq!(dash.get(&path).await.status, 400, "{watch}");
    }
    let audit = dash.api("audit").await;
    assert_eq!(audit, json!([]), "an action began");
}

/// Returns a value with all members of a schema.
fn sample(schema: &Value) -> Value {
    if let Some(any) = schema["oneOf"].as_array() {
        return sample(any.last().unwrap());
    }
    if let Some(any) = schema["anyOf"].as_array() {
        return sample(&any[0]);
    }
    if let Some(values) = schema["enum"].as_array() {
        return values[0].clone();
    }
    match schema["type"].as_str().or(schema["type"][0].as_str()) {
        None => Value::Null,
        Some("object") => {
            let members = schema["properties"].as_object().into_iter().flatten();
            members.map(|(name, schema)| (name.clone(), sample(schema))).collect::<Map<_, _>>().into()
        }
        Some("array") => match schema["prefixItems"].as_array() {
            Some(items) => items.iter().map(sample).collect(),
            None => vec![sample(&schema["items"])].into(),
        },
        Some("integer" | "number") => json!(1),
        Some("boolean") => json!(true),
        _ => json!("1-1"),
    }
}

/// Returns the value with an unknown member, once for each object in it.
fn with_unknown_members(value: &Value) -> Vec<Value> {
    let Value::Object(members) = value else { return Vec::new() };
    let mut found = vec![value.clone()];
    found[0]["undescribed"] = json!(1);
    for (name, member) in members {
        found.extend(with_unknown_members(member).into_iter().map(|inner| {
            let mut outer = value.clone();
            outer[name] = inner;
            outer
        }));
    }
    found
}
