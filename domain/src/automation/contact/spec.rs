use serde::{Deserialize, Serialize};

use crate::{
    automation::{QuietHours, SecretChange},
    kernel::{Rejection, clean_text, present, required_text},
};

/// Longest name, in characters.
pub const MAX_CONTACT_NAME: usize = 255;
/// Longest mail address, in characters (RFC 5321: 64 of the mailbox, `@`, 255 of the domain, at most 254 of all).
pub const MAX_MAIL_ADDRESS: usize = 254;

/// The message format of an incoming webhook of a chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChatFormat {
    Slack,
    Mattermost,
    Teams,
}

/// Where a contact is notified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Destination {
    Email {
        address: String,
    },
    Chat {
        format: ChatFormat,
        /// The address of the incoming webhook, encrypted: its knowledge permits to write.
        sealed: String,
        /// The host in that address, which is shown.
        host: String,
    },
    Webhook {
        url: String,
        /// Signs messages; encrypted.
        sealed_secret: Option<String>,
    },
}

/// The settings of a contact that an admin chooses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContactSpec {
    /// Unique name, 1–255 characters.
    pub name: String,
    #[serde(flatten)]
    pub destination: Destination,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_hours: Option<QuietHours>,
}

/// Another address of an incoming webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedAddress {
    pub sealed: String,
    pub host: String,
}

/// Changes of a destination, whose kind stays; absent fields stay unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum DestinationChanges {
    Email { address: Option<String> },
    Chat { format: Option<ChatFormat>, address: Option<SealedAddress> },
    Webhook { url: Option<String>, secret: SecretChange },
}

/// Changes of a contact; absent fields stay unchanged, `Some(None)` clears.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContactChanges {
    pub name: Option<String>,
    pub destination: Option<DestinationChanges>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub quiet_hours: Option<Option<QuietHours>>,
}

/// How a contact is notified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContactKind {
    Email,
    Chat,
    Webhook,
}

impl ContactKind {
    /// The word that clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Email => "email",
            Self::Chat => "chat",
            Self::Webhook => "webhook",
        }
    }
}

impl ChatFormat {
    pub const ALL: [Self; 3] = [Self::Slack, Self::Mattermost, Self::Teams];

    /// The word that clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Slack => "slack",
            Self::Mattermost => "mattermost",
            Self::Teams => "teams",
        }
    }
}

impl Destination {
    pub fn kind(&self) -> ContactKind {
        match self {
            Self::Email { .. } => ContactKind::Email,
            Self::Chat { .. } => ContactKind::Chat,
            Self::Webhook { .. } => ContactKind::Webhook,
        }
    }

    fn with(&self, changes: DestinationChanges) -> Result<Self, Rejection> {
        match (self.clone(), changes) {
            (Self::Email { address }, DestinationChanges::Email { address: new }) => {
                Ok(Self::Email { address: new.unwrap_or(address) })
            }
            (
                Self::Chat { format, sealed, host },
                DestinationChanges::Chat { format: new_format, address },
            ) => {
                let SealedAddress { sealed, host } = address.unwrap_or(SealedAddress { sealed, host });
                Ok(Self::Chat { format: new_format.unwrap_or(format), sealed, host })
            }
            (Self::Webhook { url, sealed_secret }, DestinationChanges::Webhook { url: new_url, secret }) => {
                let sealed_secret = match secret {
                    SecretChange::Keep => sealed_secret,
                    SecretChange::Clear => None,
                    SecretChange::Seal(sealed) => Some(sealed),
                };
                Ok(Self::Webhook { url: new_url.unwrap_or(url), sealed_secret })
            }
            (present, _) => {
                let fault = format!("of a contact does not change, and is {}", present.kind().as_str());
                Err(Rejection::field("kind", fault))
            }
        }
    }
}

impl ContactSpec {
    /// This contact after `changes`.
    ///
    /// # Errors
    /// A [`Rejection`] when the changed contact is invalid, or would be of another kind.
    pub fn with(&self, changes: ContactChanges) -> Result<Self, Rejection> {
        let destination = match changes.destination {
            Some(changes) => self.destination.with(changes)?,
            None => self.destination.clone(),
        };
        let changed = Self {
            name: changes.name.unwrap_or_else(|| self.name.clone()),
            destination,
            quiet_hours: changes.quiet_hours.unwrap_or_else(|| self.quiet_hours.clone()),
        };
        changed.validate()
    }

    /// This contact, with its name and mail address trimmed. Addresses of chats and webhooks are checked by those who
    /// know URLs.
    ///
    /// # Errors
    /// A [`Rejection`] that names the fault.
    pub fn validate(mut self) -> Result<Self, Rejection> {
        self.name = required_text("name", &self.name, MAX_CONTACT_NAME)?;
        if let Destination::Email { address } = &mut self.destination {
            *address = mail_address(address)?;
        }
        if let Some(hours) = &self.quiet_hours {
            hours
                .validate()
                .map_err(|fault| Rejection::field("quiet_hours", format!("are invalid: {fault}")))?;
        }
        Ok(self)
    }
}

/// The address in the form `mailbox@domain`, without a display name. Line breaks would add headers to a message, and
/// spaces, commas and angle brackets other receivers.
fn mail_address(text: &str) -> Result<String, Rejection> {
    let text = clean_text(text, MAX_MAIL_ADDRESS).map_err(|error| Rejection::field("address", error))?;
    let has_separator = text.chars().any(|letter| {
        letter.is_whitespace() || letter.is_control() || [',', ';', '<', '>', '"', '(', ')'].contains(&letter)
    });
    let is_address = !has_separator
        && text.split_once('@').is_some_and(|(mailbox, domain)| {
            !mailbox.is_empty() && mailbox.len() <= 64 && !domain.is_empty() && !domain.contains('@')
        });
    if is_address {
        Ok(text)
    } else {
        Err(Rejection::field("address", "must be one mail address such as ops@example.org, without a name"))
    }
}

#[cfg(test)]
mod tests {
    use chrono::NaiveTime;
    use serde_json::json;

    use super::*;

    fn mail(address: &str) -> ContactSpec {
        let destination = Destination::Email { address: address.to_owned() };
        ContactSpec { name: "operators".to_owned(), destination, quiet_hours: None }
    }

    fn webhook() -> ContactSpec {
        let destination = Destination::Webhook {
            url: "https://example.org/hook".to_owned(),
            sealed_secret: Some("sealed".to_owned()),
        };
        ContactSpec { destination, ..mail("") }
    }

    fn change(destination: DestinationChanges) -> ContactChanges {
        ContactChanges { destination: Some(destination), ..ContactChanges::default() }
    }

    #[test]
    fn mail_addresses_name_one_receiver() {
        for address in [
            "",
            "ops",
            "@example.org",
            "ops@",
            "a@b@c",
            "a@b.org,c@d.org",
            "Ops <ops@b.org>",
            "ops@b.org\r\nBcc: c@d.org",
            "ops @b.org",
            "\"ops\"@b.org",
        ] {
            let fault = mail(address).validate().unwrap_err();
            assert!(fault.message.starts_with("address "), "{address}: {}", fault.message);
        }
        assert!(mail(&format!("{}@b.org", "a".repeat(65))).validate().is_err());
        assert!(mail(&format!("a@{}", "b".repeat(253))).validate().is_err());
        let trimmed = mail(" ops+night@example.org\n").validate().unwrap();
        assert_eq!(trimmed, mail("ops+night@example.org"));
    }

    #[test]
    fn a_contact_needs_a_name() {
        for name in ["", "  ", "a\0b", &"a".repeat(MAX_CONTACT_NAME + 1)] {
            assert!(ContactSpec { name: name.to_owned(), ..webhook() }.validate().is_err(), "{name:?}");
        }
    }

    #[test]
    fn invalid_quiet_hours_are_refused_by_their_field() {
        let time = NaiveTime::MIN;
        let hours = QuietHours { from: time, to: time, timezone: "UTC".to_owned() };
        let fault = ContactSpec { quiet_hours: Some(hours), ..webhook() }.validate().unwrap_err();
        assert!(fault.message.starts_with("quiet_hours "), "{}", fault.message);
    }

    #[test]
    fn absent_fields_stay_as_they_are() {
        assert_eq!(webhook().with(ContactChanges::default()), Ok(webhook()));
        let keep = DestinationChanges::Webhook { url: None, secret: SecretChange::Keep };
        assert_eq!(webhook().with(change(keep)), Ok(webhook()));
        let clear = DestinationChanges::Webhook { url: None, secret: SecretChange::Clear };
        let Destination::Webhook { url, sealed_secret } = webhook().with(change(clear)).unwrap().destination
        else {
            panic!("it is of another kind")
        };
        assert_eq!((url.as_str(), sealed_secret), ("https://example.org/hook", None));
    }

    #[test]
    fn the_kind_of_a_contact_does_not_change() {
        let other = change(DestinationChanges::Email { address: Some("a@b.org".to_owned()) });
        let fault = webhook().with(other).unwrap_err();
        assert!(fault.message.starts_with("kind "), "{}", fault.message);
    }

    #[test]
    fn the_kind_is_stored_beside_its_settings() {
        let stored = json!({"name": "operators", "kind": "webhook", "url": "https://example.org/hook",
            "sealed_secret": "sealed"});
        assert_eq!(serde_json::to_value(webhook()).unwrap(), stored);
        assert_eq!(serde_json::from_value::<ContactSpec>(stored).unwrap(), webhook());
    }
}
