use signalbox_clock::Clock;
use signalbox_config::{Sso, SsoRole};
use signalbox_domain::identity::Role;
use signalbox_openid::{Provider, SettingsError};

/// Where the front end takes the browser over.
pub(crate) const FRONT_END: &str = "/sso-callback";

/// The OpenID provider, and what is done with those who come from there.
pub(crate) struct SingleSignOn {
    pub(crate) provider: Provider,
    pub(crate) provider_name: String,
    pub(crate) front_end: String,
    pub(crate) create_users: bool,
    pub(crate) default_role: Role,
    /// Whether browsers reach this service by TLS.
    pub(crate) is_secure: bool,
}

impl SingleSignOn {
    /// Single sign-on as `settings` want it; none without an issuer.
    pub(crate) fn open(settings: &Sso, clock: &Clock) -> Result<Option<Self>, SettingsError> {
        if settings.issuer.is_empty() {
            return Ok(None);
        }
        let provider = Provider::new(settings, clock.clone())?;
        Ok(Some(Self {
            provider,
            provider_name: settings.provider_name.clone(),
            front_end: format!("{}{FRONT_END}", settings.frontend_url.trim_end_matches('/')),
            create_users: settings.create_users,
            default_role: match settings.default_role {
                SsoRole::Viewer => Role::Viewer,
                SsoRole::Operator => Role::Operator,
            },
            is_secure: settings.public_url.starts_with("https://"),
        }))
    }
}
