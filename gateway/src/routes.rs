//! Routes with their description and their policies. The contexts declare them; the router is made of them.

use std::collections::HashMap;

use axum::{
    Router,
    extract::{MatchedPath, Request},
    http::Method,
    routing::MethodRouter,
};
use utoipa::openapi::{OpenApi, PathItem};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};

use crate::{
    paths,
    policy::{Policy, RateClass},
    state::Services,
};

/// The policy of every route.
#[derive(Debug, Default)]
pub(crate) struct Policies(HashMap<String, Vec<(Method, Policy)>>);

impl Policies {
    fn add(&mut self, path: &str, method: Method, policy: Policy) {
        let is_read = policy.is_read || method == Method::GET;
        self.0.entry(path.to_owned()).or_default().push((method, Policy { is_read, ..policy }));
    }

    /// The policy of `method` at `route`; of another method there, if it does not take this one.
    fn find(&self, route: &str, method: &Method) -> Option<Policy> {
        let known = self.0.get(route)?;
        let takes = |known: &Method| known == method || (method == Method::HEAD && known == Method::GET);
        let of_method = known.iter().find(|(known, _)| takes(known));
        of_method.or(known.first()).map(|(_, policy)| *policy)
    }

    /// `request` with the policy of its route.
    pub(crate) fn attach(&self, mut request: Request) -> Request {
        let route = request.extensions().get::<MatchedPath>();
        let known = route.and_then(|route| self.find(route.as_str(), request.method()));
        let policy = known.unwrap_or_else(|| unlisted(&request));
        request.extensions_mut().insert(policy);
        request
    }
}

/// The policy of pages and of paths that no route has.
fn unlisted(request: &Request) -> Policy {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    Policy { dialect: paths::dialect(request.uri().path()), is_read, ..Policy::PROBLEMS }
}

/// Routes, their description, and the policy of each.
pub(crate) struct Routes {
    router: OpenApiRouter<Services>,
    policies: Policies,
    policy: Policy,
}

impl Routes {
    /// No routes; those that are added have `policy` unless they say otherwise.
    pub(crate) fn new(policy: Policy) -> Self {
        Self { router: OpenApiRouter::new(), policies: Policies::default(), policy }
    }

    /// No routes, of an interface that `description` introduces.
    pub(crate) fn described_by(description: OpenApi) -> Self {
        Self { router: OpenApiRouter::with_openapi(description), ..Self::new(Policy::PROBLEMS) }
    }

    /// Adds described routes.
    pub(crate) fn routes(self, routes: UtoipaMethodRouter<Services>) -> Self {
        let policy = self.policy;
        self.with(policy, routes)
    }

    /// Adds described routes that have `policy`.
    pub(crate) fn with(mut self, policy: Policy, routes: UtoipaMethodRouter<Services>) -> Self {
        for (path, item) in &routes.1.paths {
            for method in methods(item) {
                self.policies.add(path, method, policy);
            }
        }
        Self { router: self.router.routes(routes), ..self }
    }

    /// Adds a socket, which OpenAPI cannot describe. Its extractor or its messages are counted.
    pub(crate) fn socket(mut self, path: &str, handler: MethodRouter<Services>) -> Self {
        self.policies.add(path, Method::GET, self.policy.rate(RateClass::Uncounted));
        Self { router: self.router.route(path, handler), ..self }
    }

    /// Adds the routes of `other` with their policies.
    pub(crate) fn merge(mut self, other: Self) -> Self {
        for (path, policies) in other.policies.0 {
            self.policies.0.entry(path).or_default().extend(policies);
        }
        Self { router: self.router.merge(other.router), ..self }
    }

    /// Calls `each` with the policy and the description of every described path.
    pub(crate) fn describe(&mut self, mut each: impl FnMut(Policy, &mut PathItem)) {
        for (path, item) in &mut self.router.get_openapi_mut().paths.paths {
            if let Some(policy) = self.policies.find(path, &Method::GET) {
                each(policy, item);
            }
        }
    }

    /// The router, its policies, and its description.
    pub(crate) fn split(self) -> (Router<Services>, Policies, OpenApi) {
        let (router, description) = self.router.split_for_parts();
        (router, self.policies, description)
    }
}

/// The methods that `item` describes.
fn methods(item: &PathItem) -> impl Iterator<Item = Method> {
    let described = [
        (Method::GET, &item.get),
        (Method::PUT, &item.put),
        (Method::POST, &item.post),
        (Method::DELETE, &item.delete),
        (Method::PATCH, &item.patch),
    ];
    described.into_iter().filter(|(_, operation)| operation.is_some()).map(|(method, _)| method)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::{openapi::described_routes, policy::Repetition, problem::Dialect};

    /// Sockets, which are not described.
    const SOCKETS: [&str; 4] =
        ["/ws/agent", "/api/agent/ws", "/ws/datapoints/stream", "/ws/controller/telemetry"];

    struct Operation {
        name: String,
        policy: Policy,
        value: Value,
    }

    impl Operation {
        /// Names of the credentials that it takes; an empty one if it needs none.
        fn credentials(&self) -> Vec<String> {
            match self.value["security"].as_array() {
                None => vec![String::new()],
                Some(all) => {
                    all.iter().map(|one| one.as_object().unwrap().keys().cloned().collect()).collect()
                }
            }
        }
    }

    /// Every described operation. Fails for one without a policy, or with two.
    fn operations() -> Vec<Operation> {
        let (_, Policies(mut policies), description) = described_routes().split();
        let description = serde_json::to_value(description).unwrap();
        let mut found = Vec::new();
        for (path, item) in description["paths"].as_object().unwrap() {
            for (method, value) in item.as_object().unwrap() {
                let method = method.to_uppercase();
                let name = format!("{method} {path}");
                let of_path = policies.get_mut(path).unwrap_or_else(|| panic!("{name} has no policy"));
                let of_method: Vec<_> =
                    of_path.extract_if(.., |(known, _)| known.as_str() == method).collect();
                let [(_, policy)] = of_method[..] else { panic!("{name} has {} policies", of_method.len()) };
                found.push(Operation { name, policy, value: value.clone() });
            }
        }
        policies.retain(|_, rest| !rest.is_empty());
        let mut rest: Vec<_> = policies.into_keys().collect();
        rest.sort_unstable();
        let mut sockets = SOCKETS;
        sockets.sort_unstable();
        assert_eq!(rest, sockets);
        found
    }

    fn names(fits: impl Fn(&Operation) -> bool) -> Vec<String> {
        operations().into_iter().filter(fits).map(|operation| operation.name).collect()
    }

    #[test]
    fn every_route_has_one_policy() {
        assert!(operations().len() > 100);
    }

    #[test]
    fn errors_are_described_in_the_dialect_of_the_route() {
        for Operation { name, policy, value } in operations() {
            let refusals =
                value["responses"].as_object().unwrap().iter().filter(|(status, _)| status.as_str() >= "400");
            for (status, refusal) in refusals.filter(|_| !policy.is_probe()) {
                let expected = match policy.dialect {
                    Dialect::Service1 | Dialect::Influx => "application/json",
                    Dialect::Problem => "application/problem+json",
                };
                assert!(refusal["content"][expected].is_object(), "{name}: {status}");
            }
        }
    }

    #[test]
    fn bodies_of_files_are_not_kept_to_recognise_repetitions() {
        let takes_files = |value: &Value| {
            value["requestBody"]["content"]
                .as_object()
                // Lines and samples are read into memory anyway.
                .is_some_and(|kinds| {
                    let small = ["application/json", "application/x-protobuf", "text/plain"];
                    !small.iter().any(|kind| kinds.contains_key(*kind))
                })
        };
        let found = names(|operation| {
            let by_body = operation.policy.repetition == Repetition::ByBody;
            operation.name.starts_with("POST ") && takes_files(&operation.value) && by_body
        });
        assert_eq!(found, [""; 0]);
        assert!(names(|operation| takes_files(&operation.value)).len() > 6);
    }

    #[test]
    fn open_posts_are_those_without_a_credential() {
        let posts = |operation: &Operation| operation.name.starts_with("POST ");
        let found = names(|operation| posts(operation) && operation.policy.is_open);
        let described =
            names(|operation| posts(operation) && operation.credentials().contains(&String::new()));
        assert_eq!(found, described);
        assert!(found.contains(&"POST /api/auth/login".to_owned()));
    }

    #[test]
    fn agents_and_probes_alone_are_not_counted() {
        let found = names(|operation| operation.policy.rate == RateClass::Uncounted);
        let expected = names(|operation| {
            operation.policy.is_probe() || operation.credentials().contains(&"agent".to_owned())
        });
        assert_eq!(found, expected);
        assert_eq!(
            names(|operation| operation.policy.is_probe()),
            ["GET /api/health", "GET /api/v1/health", "GET /health", "GET /livez", "GET /readyz"]
        );
    }

    #[test]
    fn gets_and_named_posts_change_nothing() {
        let found = names(|operation| operation.policy.is_read && !operation.name.starts_with("GET "));
        assert_eq!(
            found,
            [
                "POST /api/v1/datapoints/series",
                "POST /api/v1/prometheus/read",
                "POST /api/v1/rules/backtest",
                "POST /api/v1/rules/{id}/backtest"
            ]
        );
        assert_eq!(
            names(|operation| operation.name.starts_with("GET ") && !operation.policy.is_read),
            [""; 0]
        );
    }

    #[test]
    fn another_method_has_the_policy_of_its_path() {
        let (_, policies, _) = described_routes().split();
        let of = |method: &Method, path| policies.find(path, method).unwrap();
        let path = "/api/v1/datapoints";
        assert_eq!(of(&Method::POST, path).rate, RateClass::Ingest);
        assert_eq!(of(&Method::HEAD, path), of(&Method::GET, path));
        assert_eq!(of(&Method::DELETE, "/api/jobs").dialect, Dialect::Service1);
        assert_eq!(policies.find("/api/v1/nothing", &Method::GET), None);
    }
}
