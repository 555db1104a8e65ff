//! The description of the API (OpenAPI 3.1), made of its routes and of the types that their handlers take and return.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::handler::Handler;
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use millstream_worker::operate::operation::{Effect, EffectAnswer};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::app::{Acting, App, Asked, Attachment, Caller, Json, JsonBody, Params};
use crate::problem::{Problem, ProblemJson};
use crate::sse::EventStream;

const ABOUT: &str = "The API of `millstream dash` and of `serve --http`. Fields are only ever added. Numbers in milliseconds end \
    in _ms, ids are strings, and unknown is null. Names travel in the query, percent-encoded. Actions that destroy something \
    need two steps: with \"dry_run\": true they answer a plan with its preview; without, the body carries this preview.";

pub(crate) const GET: (MethodFilter, &str) = (MethodFilter::GET, "get");
pub(crate) const POST: (MethodFilter, &str) = (MethodFilter::POST, "post");
pub(crate) const DELETE: (MethodFilter, &str) = (MethodFilter::DELETE, "delete");

/// Routes, and their description.
pub(crate) struct Api {
    pub(crate) router: Router<Arc<App>>,
    paths: Map<String, Value>,
    schemas: Schemas,
}

/// The schemas of answers, which refer to each other by name, and of requests, which have all parts in one place.
pub(crate) struct Schemas {
    answers: SchemaGenerator,
    requests: SchemaGenerator,
}

impl Schemas {
    /// Returns a response with a body of this type.
    fn response<T: JsonSchema>(&mut self, description: &str) -> Value {
        let schema = self.answers.subschema_for::<T>();
        json!({ "description": description, "content": { "application/json": { "schema": schema } } })
    }
}

/// What a handler takes from its request.
pub(crate) trait Input {
    /// Adds the parameters or the body to the description of a route.
    fn describe(_: &mut Value, _: &mut Schemas) {}
}

/// What a handler answers.
pub(crate) trait Output {
    /// Adds the responses to the description of a route.
    fn describe(responses: &mut Value, schemas: &mut Schemas);
}

/// A handler whose arguments and answer are described by their types.
pub(crate) trait Described<Arguments> {
    fn describe(route: &mut Value, schemas: &mut Schemas);
}

macro_rules! described {
    ($($argument:ident)*) => {
        impl<F, Answer, $($argument),*> Described<($($argument,)*)> for F
        where
            F: AsyncFn($($argument),*) -> Answer,
            Answer: Output,
            $($argument: Input,)*
        {
            fn describe(route: &mut Value, schemas: &mut Schemas) {
                $($argument::describe(route, schemas);)*
                Answer::describe(&mut route["responses"], schemas);
            }
        }
    };
}
described!(A);
described!(A B);
described!(A B C);

impl Api {
    pub(crate) fn new() -> Api {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        });
        let requests = settings.clone().for_deserialize().with(|settings| settings.inline_subschemas = true);
        let answers = settings.for_serialize().into_generator();
        let schemas = Schemas { answers, requests: requests.into_generator() };
        Api { router: Router::new(), paths: Map::new(), schemas }
    }

    /// Adds a route.
    pub(crate) fn route<H: Handler<T, Arc<App>> + Described<A>, T: 'static, A>(
        mut self,
        (filter, method): (MethodFilter, &str),
        path: &str,
        summary: &str,
        handler: H,
    ) -> Api {
        let problem = json!({ "$ref": "#/components/responses/Problem" });
        let mut route = json!({ "summary": summary, "parameters": [], "responses": { "default": problem } });
        if filter != GET.0 {
            route["parameters"] = json!([{ "$ref": "#/components/parameters/XMillstream" }]);
        }
        H::describe(&mut route, &mut self.schemas);
        self.paths.entry(path).or_insert_with(|| json!({}))[method] = route;
        self.router = self.router.route(path, on(filter, handler));
        self
    }

    /// Returns the whole description.
    pub(crate) fn description(mut self) -> Value {
        let problem = self.schemas.answers.subschema_for::<ProblemJson>();
        let header = json!({
            "name": "X-Millstream",
            "in": "header",
            "required": true,
            "description": "No foreign page can send it",
            "schema": { "const": "1" },
        });
        json!({
            "openapi": "3.1.0",
            "info": { "title": "Millstream dashboard", "version": "1", "description": ABOUT },
            "servers": [{ "url": "/api/v1" }],
            "security": [{}, { "bearer": [] }, { "session": [] }],
            "paths": self.paths,
            "components": {
                "schemas": self.schemas.answers.take_definitions(true),
                "parameters": { "XMillstream": header },
                "responses": { "Problem": {
                    "description": "Why the request failed",
                    "content": { "application/problem+json": { "schema": problem } },
                } },
                "securitySchemes": {
                    "bearer": { "type": "http", "scheme": "bearer" },
                    "session": { "type": "apiKey", "in": "cookie", "name": "millstream_PORT" },
                },
            },
        })
    }
}

impl Input for State<Arc<App>> {}
impl Input for Caller {}

impl<T: JsonSchema> Input for Params<T> {
    fn describe(route: &mut Value, schemas: &mut Schemas) {
        let mut schema = json!(schemas.requests.subschema_for::<T>());
        let Value::Object(properties) = schema["properties"].take() else { return };
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        for (name, mut schema) in properties {
            let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
            if let Some(parameters) = route["parameters"].as_array_mut() {
                parameters.push(json!({
                    "name": name,
                    "in": "query",
                    "required": required.contains(&json!(name)),
                    "description": description,
                    "schema": schema,
                }));
            }
        }
    }
}

impl<T: JsonSchema> Input for Asked<T> {
    fn describe(route: &mut Value, schemas: &mut Schemas) {
        Params::<T>::describe(route, schemas);
    }
}

impl<T: JsonSchema> Input for Acting<T> {
    fn describe(route: &mut Value, schemas: &mut Schemas) {
        JsonBody::<T>::describe(route, schemas);
    }
}

impl<T: JsonSchema> Input for JsonBody<T> {
    fn describe(route: &mut Value, schemas: &mut Schemas) {
        let schema = schemas.requests.subschema_for::<T>();
        route["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": schema } } });
    }
}

impl<T: JsonSchema> Output for Json<T> {
    fn describe(responses: &mut Value, schemas: &mut Schemas) {
        responses["200"] = schemas.response::<T>("The answer");
    }
}

impl<T: Output> Output for Result<T, Problem> {
    fn describe(responses: &mut Value, schemas: &mut Schemas) {
        T::describe(responses, schemas);
    }
}

impl<T: Output> Output for ([(HeaderName, String); 1], T) {
    fn describe(responses: &mut Value, schemas: &mut Schemas) {
        T::describe(responses, schemas);
    }
}

impl Output for (StatusCode, [(HeaderName, String); 1]) {
    fn describe(responses: &mut Value, schemas: &mut Schemas) {
        StatusCode::describe(responses, schemas);
    }
}

impl Output for StatusCode {
    fn describe(responses: &mut Value, _: &mut Schemas) {
        responses["204"] = json!({ "description": "Done" });
    }
}

/// What an action would do, what it did, or the id of the job that does it.
pub(crate) enum Acted<E> {
    Effect(EffectAnswer<E>),
    Job(String),
}

/// The job that does what the plan says.
#[derive(Serialize, JsonSchema)]
struct StartedJob {
    job: String,
}

impl Output for Attachment {
    fn describe(responses: &mut Value, _: &mut Schemas) {
        let schema = json!({ "type": "string", "format": "binary" });
        responses["200"] = json!({
            "description": "The answer", "content": { "application/octet-stream": { "schema": schema } },
        });
    }
}

impl Output for EventStream {
    fn describe(responses: &mut Value, _: &mut Schemas) {
        let content = json!({ "text/event-stream": { "schema": { "type": "string" } } });
        responses["200"] = json!({ "description": "The answer", "content": content });
    }
}

impl<E: Effect> Output for Acted<E> {
    fn describe(responses: &mut Value, schemas: &mut Schemas) {
        responses["200"] = schemas.response::<EffectAnswer<E>>("The plan, or what was done");
        responses["202"] = schemas.response::<StartedJob>("A job does it, because it takes long");
    }
}

impl<E: Effect> IntoResponse for Acted<E> {
    fn into_response(self) -> Response {
        match self {
            Acted::Effect(answer) => Json(answer).into_response(),
            Acted::Job(job) => (StatusCode::ACCEPTED, Json(StartedJob { job })).into_response(),
        }
    }
}
