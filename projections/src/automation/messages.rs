//! Messages about alarms, as they are written for mails and chats.

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};
use signalbox_domain::{
    automation::{ChatFormat, LineKind, Severity},
    kernel::{AlarmId, ChannelId, ContactId, RuleId},
};
use uuid::Uuid;

use super::outgoing::text_of;

/// Type of a message about alarms.
pub const ALARM_MESSAGE: &str = "alarm.notification";
/// Type of a message that only shows that it arrives.
pub const TEST_MESSAGE: &str = "contact.test";

/// Alarms that a message shows; it counts the others. Teams refuses messages of more than 28 KB.
pub const SHOWN_ALARMS: usize = 20;
/// Characters of a summary in a message.
const SHOWN_SUMMARY: usize = 200;
/// Follows an `@`, so that the name behind it mentions no user of the chat.
const ZERO_WIDTH_SPACE: char = '\u{200b}';

/// A message as the log keeps it, and as contacts of the kind `webhook` get it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MessageBody {
    /// [`ALARM_MESSAGE`] or [`TEST_MESSAGE`].
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(serialize_with = "in_microseconds")]
    pub time: DateTime<Utc>,
    pub id: Uuid,
    /// Name of the contact.
    pub contact: String,
    pub contact_id: ContactId,
    /// The first [`SHOWN_ALARMS`].
    pub alarms: Vec<AlarmEntry>,
    /// Alarms that are not shown.
    #[serde(default)]
    pub more: usize,
}

/// An alarm in a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AlarmEntry {
    pub alarm_id: AlarmId,
    pub kind: LineKind,
    pub severity: Severity,
    /// The rendered summary of its rule, or the names of rule and channel with the value.
    pub summary: String,
    /// Name of the channel.
    pub sensor: String,
    pub sensor_id: ChannelId,
    /// The newest judged value.
    pub value: Option<f64>,
    pub unit: Option<String>,
    pub rule: String,
    pub rule_id: RuleId,
    /// By the clock of the channel, as the next one.
    #[serde(serialize_with = "in_microseconds")]
    pub started_on: DateTime<Utc>,
    #[serde(serialize_with = "if_any_in_microseconds")]
    pub cleared_on: Option<DateTime<Utc>>,
    /// The console's page of the alarm; only its path, if the service does not know its own address.
    pub link: String,
}

fn in_microseconds<S: Serializer>(time: &DateTime<Utc>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&text_of(*time))
}

fn if_any_in_microseconds<S: Serializer>(time: &Option<DateTime<Utc>>, to: S) -> Result<S::Ok, S::Error> {
    time.map(text_of).serialize(to)
}

/// The line of a message about one alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MessageLine<'a> {
    kind: LineKind,
    severity: Severity,
    summary: &'a str,
    since: DateTime<Utc>,
    /// When it was cleared.
    until: Option<DateTime<Utc>>,
    link: &'a str,
}

/// A message about alarms, with at least one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AlarmMessage<'a> {
    lines: &'a [MessageLine<'a>],
    /// Alarms that it counts only.
    more: usize,
}

impl MessageBody {
    /// The message that only shows that messages arrive.
    pub fn test(id: Uuid, contact_id: ContactId, contact: String, time: DateTime<Utc>) -> Self {
        Self { kind: TEST_MESSAGE.to_owned(), time, id, contact, contact_id, alarms: Vec::new(), more: 0 }
    }

    /// The subject of a mail, on one line.
    pub fn subject(&self) -> String {
        match self.test_text() {
            Some(_) => "Test message of Signalbox".to_owned(),
            None => self.with_alarms(|message| message.subject()),
        }
    }

    /// The text of a mail.
    pub fn text(&self) -> String {
        self.test_text().unwrap_or_else(|| self.with_alarms(|message| message.text()))
    }

    /// The body for an incoming webhook of a chat. Names in it neither format the message nor mention users.
    pub fn chat_body(&self, format: ChatFormat) -> Value {
        match (self.test_text(), format) {
            (None, _) => self.with_alarms(|message| message.chat_body(format)),
            (Some(text), ChatFormat::Slack) => slack(&escape_slack(&text)),
            (Some(text), ChatFormat::Mattermost) => mattermost(&escape_markdown(&text)),
            (Some(text), ChatFormat::Teams) => card(&[block(&text)]),
        }
    }

    fn test_text(&self) -> Option<String> {
        let name = one_line(&self.contact);
        let text = || {
            format!(
                "This is a test message to the contact {name}. Messages about alarms arrive in the same way."
            )
        };
        (self.kind == TEST_MESSAGE).then(text)
    }

    fn with_alarms<T>(&self, write: impl FnOnce(AlarmMessage<'_>) -> T) -> T {
        let lines: Vec<_> = self
            .alarms
            .iter()
            .map(|entry| MessageLine {
                kind: entry.kind,
                severity: entry.severity,
                summary: &entry.summary,
                since: entry.started_on,
                until: entry.cleared_on,
                link: &entry.link,
            })
            .collect();
        write(AlarmMessage { lines: &lines, more: self.more })
    }
}

fn words(kind: LineKind) -> &'static str {
    match kind {
        LineKind::Fired => "firing",
        LineKind::Cleared => "cleared",
        LineKind::FiredAndCleared => "fired and cleared",
        LineKind::Reminder => "still firing",
        LineKind::Escalation => "not acknowledged",
    }
}

fn is_firing(kind: LineKind) -> bool {
    matches!(kind, LineKind::Fired | LineKind::Reminder | LineKind::Escalation)
}

impl MessageLine<'_> {
    /// `CRITICAL firing: boiler too hot (since 2026-01-10T12:00:00Z)`, on one line whatever the summary is.
    fn text(&self) -> String {
        let text = |time: DateTime<Utc>| time.to_rfc3339_opts(SecondsFormat::Secs, true);
        let time = match self.until.filter(|_| !is_firing(self.kind)) {
            Some(until) => format!("from {} to {}", text(self.since), text(until)),
            None => format!("since {}", text(self.since)),
        };
        format!("{}: {} ({time})", self.state(), self.summary())
    }

    /// `CRITICAL firing`.
    fn state(&self) -> String {
        format!("{} {}", self.severity.as_str().to_uppercase(), words(self.kind))
    }

    fn summary(&self) -> String {
        let line = one_line(self.summary);
        match line.char_indices().nth(SHOWN_SUMMARY) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line,
        }
    }
}

impl AlarmMessage<'_> {
    /// The subject of a mail, on one line.
    pub fn subject(&self) -> String {
        match self.lines {
            [line] if self.more == 0 => {
                format!("{}: {}", line.state(), line.summary())
            }
            lines => {
                let firing: Vec<_> = lines.iter().filter(|line| is_firing(line.kind)).collect();
                let at_least = if self.more > 0 { "at least " } else { "" };
                let highest = firing.iter().map(|line| line.severity).max();
                let severity = highest.map(|severity| format!("{}: ", severity.as_str().to_uppercase()));
                let (severity, all) = (severity.unwrap_or_default(), lines.len() + self.more);
                format!("{severity}{all} alarms, {at_least}{} of them firing", firing.len())
            }
        }
    }

    /// The text of a mail.
    pub fn text(&self) -> String {
        let lines = self.shown().iter().map(|line| format!("{}\n{}\n", line.text(), line.link));
        lines.chain(self.rest()).collect::<Vec<_>>().join("\n")
    }

    /// The body for an incoming webhook of a chat. Names in it neither format the message nor mention users.
    pub fn chat_body(&self, format: ChatFormat) -> Value {
        match format {
            ChatFormat::Slack => slack(&self.chat_text(escape_slack)),
            ChatFormat::Mattermost => mattermost(&self.chat_text(escape_markdown)),
            ChatFormat::Teams => self.card(),
        }
    }

    fn chat_text(&self, escape: fn(&str) -> String) -> String {
        let lines = self.shown().iter().map(|line| format!("{}\n{}", escape(&line.text()), line.link));
        lines.chain(self.rest()).collect::<Vec<_>>().join("\n")
    }

    /// An adaptive card. Its text runs show Markdown as it is written.
    fn card(&self) -> Value {
        let alarm = |line: &MessageLine<'_>| {
            let open = json!({"type": "Action.OpenUrl", "title": "Open", "url": line.link});
            [block(&line.text()), json!({"type": "ActionSet", "actions": [open]})]
        };
        let blocks: Vec<_> =
            self.shown().iter().flat_map(alarm).chain(self.rest().map(|rest| block(&rest))).collect();
        card(&blocks)
    }

    fn shown(&self) -> &[MessageLine<'_>] {
        self.lines.get(..SHOWN_ALARMS).unwrap_or(self.lines)
    }

    fn rest(&self) -> Option<String> {
        let rest = self.lines.len().saturating_sub(SHOWN_ALARMS) + self.more;
        (rest > 0).then(|| format!("and {rest} more"))
    }
}

fn one_line(text: &str) -> String {
    let words: Vec<_> = text.split(|letter: char| letter.is_whitespace() || letter.is_control()).collect();
    words.join(" ")
}

fn slack(text: &str) -> Value {
    json!({"text": text, "mrkdwn": false, "unfurl_links": false})
}

fn mattermost(text: &str) -> Value {
    json!({"text": text})
}

fn block(text: &str) -> Value {
    json!({"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text}]})
}

fn card(blocks: &[Value]) -> Value {
    let card = json!({"$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard",
        "version": "1.2", "body": blocks});
    let attachment = json!({"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": null, "content": card});
    json!({"type": "message", "attachments": [attachment]})
}

/// Slack reads three characters: `&`, and `<` and `>` around links and mentions.
fn escape_slack(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn escape_markdown(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        if "\\`*_{}[]<>()#+-!|~:".contains(letter) {
            escaped.push('\\');
        }
        escaped.push(letter);
        if letter == '@' {
            escaped.push(ZERO_WIDTH_SPACE);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: &str = "https://plant.example.org/alarms/1";

    fn line(summary: &str) -> MessageLine<'_> {
        MessageLine {
            kind: LineKind::Fired,
            severity: Severity::Critical,
            summary,
            since: "2026-01-10T12:00:00.5Z".parse().unwrap(),
            until: None,
            link: LINK,
        }
    }

    #[test]
    fn a_mail_names_state_severity_start_and_page() {
        let lines = [line("boiler too hot")];
        let message = AlarmMessage { lines: &lines, more: 0 };
        assert_eq!(message.subject(), "CRITICAL firing: boiler too hot");
        let expected = format!("CRITICAL firing: boiler too hot (since 2026-01-10T12:00:00Z)\n{LINK}\n");
        assert_eq!(message.text(), expected);
        let until = "2026-01-10T12:04:00Z".parse().ok();
        let cleared = MessageLine { kind: LineKind::Cleared, until, ..line("boiler too hot") };
        let expected = "CRITICAL cleared: boiler too hot (from 2026-01-10T12:00:00Z to 2026-01-10T12:04:00Z)";
        assert_eq!(cleared.text(), expected);
    }

    #[test]
    fn the_subject_of_several_alarms_counts_those_that_fire() {
        let of = |kind| MessageLine { kind, ..line("a") };
        let lines = [
            of(LineKind::Fired),
            of(LineKind::Cleared),
            of(LineKind::FiredAndCleared),
            of(LineKind::Reminder),
        ];
        assert_eq!(AlarmMessage { lines: &lines, more: 0 }.subject(), "CRITICAL: 4 alarms, 2 of them firing");
        let lines = [of(LineKind::Cleared), of(LineKind::Cleared)];
        assert_eq!(AlarmMessage { lines: &lines, more: 0 }.subject(), "2 alarms, 0 of them firing");
    }

    #[test]
    fn a_summary_cannot_add_lines_or_headers() {
        let lines = [line("hot\r\nBcc: other@example.org\u{2028}\u{85}end")];
        let subject = AlarmMessage { lines: &lines, more: 0 }.subject();
        assert_eq!(subject, "CRITICAL firing: hot  Bcc: other@example.org  end");
    }

    #[test]
    fn a_message_is_bounded() {
        let long = "☃".repeat(5_000);
        let lines = vec![line(&long); 1_000];
        let message = AlarmMessage { lines: &lines, more: 0 };
        assert!(message.text().ends_with("\nand 980 more"));
        for format in ChatFormat::ALL {
            let body = message.chat_body(format).to_string();
            assert!(body.len() < 28_000 && body.contains("and 980 more"), "{format:?}: {}", body.len());
        }
        assert!(AlarmMessage { lines: &lines[..1], more: 0 }.subject().chars().count() < 300);
    }

    #[test]
    fn names_in_chats_mention_no_users() {
        let lines = [line("<!channel> & @all *bold* [x](http://a.b)")];
        let text = |format| {
            AlarmMessage { lines: &lines, more: 0 }.chat_body(format)["text"].as_str().unwrap().to_owned()
        };
        let slack = text(ChatFormat::Slack);
        assert!(slack.starts_with("CRITICAL firing: &lt;!channel&gt; &amp; @all *bold*"), "{slack}");
        let mattermost = text(ChatFormat::Mattermost);
        assert!(mattermost.contains("@\u{200b}all \\*bold\\* \\[x\\]\\(http\\://a.b\\)"), "{mattermost}");
        assert!(mattermost.ends_with(&format!("\n{LINK}")), "{mattermost}");
    }

    #[test]
    fn a_card_of_teams_shows_text_as_written() {
        let lines = [line("*hot*")];
        let body = AlarmMessage { lines: &lines, more: 0 }.chat_body(ChatFormat::Teams);
        let blocks = &body["attachments"][0]["content"]["body"];
        assert_eq!(blocks[0]["inlines"][0]["text"], "CRITICAL firing: *hot* (since 2026-01-10T12:00:00Z)");
        assert_eq!(blocks[1]["actions"][0]["url"], LINK);
        assert_eq!(blocks.as_array().unwrap().len(), 2);
    }

    #[test]
    fn alarms_that_are_not_in_the_message_are_counted() {
        let lines = [line("hot")];
        let message = AlarmMessage { lines: &lines, more: 3 };
        assert_eq!(message.subject(), "CRITICAL: 4 alarms, at least 1 of them firing");
        assert!(message.text().ends_with("\nand 3 more"));
    }

    #[test]
    fn a_test_message_has_text_for_every_kind_of_contact() {
        let time = "2026-01-10T12:00:00Z".parse().unwrap();
        let body = MessageBody::test(Uuid::nil(), ContactId(Uuid::nil()), "night\nshift".to_owned(), time);
        assert_eq!(body.subject(), "Test message of Signalbox");
        assert!(body.text().contains("the contact night shift."), "{}", body.text());
        for format in ChatFormat::ALL {
            let text = body.chat_body(format).to_string();
            assert!(text.contains("night shift"), "{text}");
        }
        let stored = serde_json::to_string(&body).unwrap();
        assert_eq!(serde_json::from_str::<MessageBody>(&stored).unwrap(), body);
    }
}
