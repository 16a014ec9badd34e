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

    /// One for each policy that was declared.
    pub(crate) fn list(&self) -> Vec<RoutePolicy> {
        let all =
            self.0.iter().flat_map(|(path, policies)| policies.iter().map(move |policy| (path, policy)));
        let of_route = |(path, (method, policy)): (&String, &(Method, Policy))| RoutePolicy {
            path: path.clone(),
            method: method.clone(),
            policy: *policy,
        };
        all.map(of_route).collect()
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

/// The policy of one route.
#[derive(Debug)]
pub struct RoutePolicy {
    /// With parameters in braces, as the description has it.
    pub path: String,
    /// Of GET, which HEAD has too, and of the others that the route takes.
    pub method: Method,
    /// Its rules.
    pub policy: Policy,
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
    use super::*;
    use crate::problem::Dialect;

    #[test]
    fn another_method_has_the_policy_of_its_path() {
        let mut policies = Policies::default();
        policies.add("/a", Method::GET, Policy::SERVICE_1);
        policies.add("/a", Method::POST, Policy::SERVICE_1.rate(RateClass::Ingest));
        let of = |method| policies.find("/a", &method).unwrap();
        assert_eq!((of(Method::POST).rate, of(Method::POST).is_read), (RateClass::Ingest, false));
        assert!(of(Method::GET).is_read);
        assert_eq!(of(Method::HEAD), of(Method::GET));
        assert_eq!(of(Method::DELETE).dialect, Dialect::Service1);
        assert_eq!(policies.find("/b", &Method::GET), None);
    }
}
