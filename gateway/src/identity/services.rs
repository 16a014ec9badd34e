//! Services that handlers of logins share.

use std::sync::Arc;

use signalbox_clock::Clock;
use signalbox_config::Config;
use signalbox_database::SharedServerClock;

use crate::{
    context_services::services,
    services::{
        auth::{Keys, Passwords, Sessions},
        commands::Commands,
        failed_logins::FailedLogins,
        limits::Limiter,
        replica::Database,
        sso::SingleSignOn,
    },
};

services! {
    /// Services to check credentials and to start sessions.
    LoginServices {
        clock: Clock,
        commands: Commands,
        config: Arc<Config>,
        database: Database,
        failed_logins: Arc<FailedLogins>,
        keys: Arc<Keys>,
        limiter: Arc<Limiter>,
        passwords: Passwords,
        server_clock: SharedServerClock,
        sessions: Arc<Sessions>,
        sso: Option<Arc<SingleSignOn>>,
    }
}
