use jsonwebtoken::{
    Algorithm,
    jwk::{AlgorithmParameters, Jwk, KeyAlgorithm, PublicKeyUse},
};
use serde::Deserialize;
use serde_json::Value;

/// The keys that a provider signs with: RFC 7517.
#[derive(Debug)]
pub(crate) struct Keys(Vec<Jwk>);

/// The fetched keys. A key of an unknown kind does not invalidate the others.
#[derive(Debug, Deserialize)]
pub(crate) struct KeySet {
    keys: Vec<Value>,
}

impl From<KeySet> for Keys {
    fn from(set: KeySet) -> Self {
        let known = set.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok());
        Self(known.filter(is_public).collect())
    }
}

impl Keys {
    /// The key named `kid` that signs by `algorithm`. A token without a name is the only such key's.
    pub(crate) fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Option<&Jwk> {
        let mut fitting = self.0.iter().filter(|key| {
            let is_named = kid.is_none() || key.common.key_id.as_deref() == kid;
            is_named && signs_by(key, algorithm)
        });
        let found = fitting.next();
        if kid.is_none() && fitting.next().is_some() { None } else { found }
    }
}

/// Whether it is half of a pair of a kind that is known.
fn is_public(key: &Jwk) -> bool {
    use AlgorithmParameters::{EllipticCurve, OctetKeyPair, RSA};
    matches!(key.algorithm, RSA(_) | EllipticCurve(_) | OctetKeyPair(_))
}

fn signs_by(key: &Jwk, algorithm: Algorithm) -> bool {
    let signs = matches!(key.common.public_key_use, None | Some(PublicKeyUse::Signature));
    let by_it = key.common.key_algorithm.is_none_or(|known| known == KeyAlgorithm::from(algorithm));
    signs && by_it
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn keys(keys: Value) -> Keys {
        serde_json::from_value::<KeySet>(json!({ "keys": keys })).unwrap().into()
    }

    fn rsa(kid: &str, more: Value) -> Value {
        let mut key = json!({"kty": "RSA", "kid": kid, "n": "AQAB", "e": "AQAB"});
        key.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        key
    }

    #[test]
    fn a_key_is_found_by_its_name_and_purpose() {
        let keys = keys(json!([
            rsa("signs", json!({"use": "sig", "alg": "RS256"})),
            rsa("encrypts", json!({"use": "enc"})),
            {"kty": "new", "kid": "new"},
        ]));
        assert!(keys.find(Some("signs"), Algorithm::RS256).is_some());
        assert!(keys.find(None, Algorithm::RS256).is_some());
        assert!(keys.find(Some("signs"), Algorithm::PS256).is_none());
        for other in ["encrypts", "unknown", "new"] {
            assert!(keys.find(Some(other), Algorithm::RS256).is_none(), "{other}");
        }
    }

    #[test]
    fn a_token_that_names_no_key_fits_none_of_several() {
        let keys = keys(json!([rsa("one", json!({})), rsa("two", json!({}))]));
        assert!(keys.find(None, Algorithm::RS256).is_none());
        assert!(keys.find(Some("two"), Algorithm::RS256).is_some());
    }
}
