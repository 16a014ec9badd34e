use signalbox_domain::kernel::Rejection;
use signalbox_openid::LoginError;

use crate::problem::{Problem, ProblemKind};

/// Reasons why a browser returns to the front end without a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    #[error("The login was declined at the identity provider. Begin again if that was a mistake.")]
    Declined,
    #[error("The login took too long, or was begun in another browser or tab. Begin again.")]
    State,
    #[error("The identity provider did not complete the login. Begin again.")]
    Refused,
    #[error("The identity provider cannot be used now. Try again in a moment, or log in with a password.")]
    ProviderUnavailable,
    #[error(
        "The answer of the identity provider cannot be trusted. Begin again, and contact an admin if it happens again."
    )]
    Untrusted,
    #[error(
        "The identity provider sent no usable e-mail address. Ask its admin to share yours with this service."
    )]
    NoEmail,
    #[error(
        "The identity provider has not verified your e-mail address. Have it verified there, then begin again."
    )]
    UnverifiedEmail,
    #[error("Your e-mail address belongs to an admin here. Admins log in with their password.")]
    AdminAccount,
    #[error("Somebody else at the identity provider logs in with your account. Ask an admin.")]
    OtherIdentity,
    #[error("Your account was deleted. Ask an admin to make one with your e-mail address.")]
    Deleted,
    #[error("You have no account here. Ask an admin to make one with your e-mail address.")]
    NoAccount,
    #[error("Too many logins from your address. Try again in a minute.")]
    TooMany,
    #[error("The service cannot log you in now. Try again in a moment.")]
    Unavailable,
}

impl Failure {
    /// Stable word for programs.
    pub(super) fn code(self) -> &'static str {
        match self {
            Self::Declined => "access_denied",
            Self::State => "invalid_state",
            Self::Refused => "login_refused",
            Self::ProviderUnavailable => "provider_unavailable",
            Self::Untrusted => "invalid_id_token",
            Self::NoEmail => "email_missing",
            Self::UnverifiedEmail => "email_unverified",
            Self::AdminAccount => "admin_account",
            Self::OtherIdentity => "other_identity",
            Self::Deleted => "account_deleted",
            Self::NoAccount => "no_account",
            Self::TooMany => "rate_limited",
            Self::Unavailable => "unavailable",
        }
    }

    /// Converts the provider's `error`.
    pub(super) fn from_provider(error: &str) -> Self {
        match error {
            "access_denied" => Self::Declined,
            "server_error" | "temporarily_unavailable" => Self::ProviderUnavailable,
            _ => Self::Refused,
        }
    }
}

impl From<LoginError> for Failure {
    fn from(error: LoginError) -> Self {
        tracing::warn!(%error, "a single sign-on failed");
        match error {
            LoginError::Unavailable(_) => Self::ProviderUnavailable,
            LoginError::Refused(_) => Self::Refused,
            LoginError::Untrusted(_) => Self::Untrusted,
        }
    }
}

impl From<Rejection> for Failure {
    fn from(rejection: Rejection) -> Self {
        match rejection.code.as_str() {
            "admin_account" => Self::AdminAccount,
            "other_identity" => Self::OtherIdentity,
            _ if rejection.pointer.as_ref().is_some_and(|field| field.as_str() == "/email") => Self::NoEmail,
            _ => Problem::from(rejection).into(),
        }
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Problem::from(error).into()
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        if problem.kind() == ProblemKind::TooMany {
            return Self::TooMany;
        }
        tracing::error!(detail = problem.detail(), "a single sign-on could not be carried out");
        Self::Unavailable
    }
}
