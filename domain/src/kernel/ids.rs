use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Makes an id a type of columns, as its UUID is.
#[cfg(feature = "sqlx")]
macro_rules! column_type {
    ($name:ident) => {
        impl sqlx::Type<sqlx::Postgres> for $name {
            fn type_info() -> sqlx::postgres::PgTypeInfo {
                <Uuid as sqlx::Type<sqlx::Postgres>>::type_info()
            }
        }

        impl sqlx::postgres::PgHasArrayType for $name {
            fn array_type_info() -> sqlx::postgres::PgTypeInfo {
                <Uuid as sqlx::postgres::PgHasArrayType>::array_type_info()
            }
        }

        impl sqlx::Encode<'_, sqlx::Postgres> for $name {
            fn encode_by_ref(
                &self,
                buffer: &mut sqlx::postgres::PgArgumentBuffer,
            ) -> Result<sqlx::encode::IsNull, sqlx::error::BoxDynError> {
                <Uuid as sqlx::Encode<'_, sqlx::Postgres>>::encode_by_ref(&self.0, buffer)
            }
        }

        impl<'r> sqlx::Decode<'r, sqlx::Postgres> for $name {
            fn decode(value: sqlx::postgres::PgValueRef<'r>) -> Result<Self, sqlx::error::BoxDynError> {
                <Uuid as sqlx::Decode<'r, sqlx::Postgres>>::decode(value).map(Self)
            }
        }
    };
}

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, uuid::Error> {
                Uuid::parse_str(text).map(Self)
            }
        }

        #[cfg(feature = "sqlx")]
        column_type!($name);

        impl From<Uuid> for $name {
            fn from(id: Uuid) -> Self {
                Self(id)
            }
        }

        impl From<$name> for Uuid {
            fn from(id: $name) -> Uuid {
                id.0
            }
        }
    };
}

id_type!(
    /// Key of a user.
    UserId
);
id_type!(
    /// Key of a login session: one family of JWTs.
    SessionId
);
id_type!(
    /// Key of an agent.
    AgentId
);
id_type!(
    /// Key of an agent token.
    AgentTokenId
);
id_type!(
    /// Key of a contact.
    ContactId
);
id_type!(
    /// Key of a job.
    JobId
);
id_type!(
    /// Key of a transfer.
    TransferId
);
id_type!(
    /// Key of a channel, which the specification calls an event.
    ChannelId
);
id_type!(
    /// Key of a widget on a dashboard.
    WidgetId
);
id_type!(
    /// Key of an alarm.
    AlarmId
);
id_type!(
    /// Key of a rule.
    RuleId
);
id_type!(
    /// Key of an extraction job.
    ExtractionJobId
);
id_type!(
    /// Key of a firmware update.
    FirmwareUpdateId
);
id_type!(
    /// Key of a webhook subscription; as the receiver of a delivery, also that of a contact or of the host of a callback.
    WebhookId
);
id_type!(
    /// Key of a delivery: it follows from webhook and event.
    DeliveryId
);
id_type!(
    /// Key of a channel mapping of a plugin instance.
    MappingId
);

impl ContactId {
    /// The contact in place of a subscription, as the receiver of deliveries.
    pub fn as_receiver(self) -> WebhookId {
        WebhookId(self.0)
    }
}
