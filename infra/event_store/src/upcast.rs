use serde_json::{Value, json};

/// A pure step from one version of an event to the next, applied when it is read.
#[derive(Debug, Clone, Copy)]
pub struct Upcaster {
    /// Aggregate whose event it is.
    pub aggregate_type: &'static str,
    /// Stable word of the event.
    pub event_type: &'static str,
    /// Version that it reads; it writes the next one.
    pub from: u32,
    /// Changes the payload.
    pub apply: fn(&mut Value),
}

/// The upcasters of all events that have changed since they were first written.
const UPCASTERS: &[Upcaster] = &[
    Upcaster {
        aggregate_type: "plugin_instance",
        event_type: "plugin_instance_created",
        from: 1,
        apply: say_how_config_is_kept,
    },
    Upcaster {
        aggregate_type: "plugin_instance",
        event_type: "plugin_instance_updated",
        from: 1,
        apply: |event| {
            for spec in ["from", "to"] {
                if let Some(spec) = event.get_mut(spec) {
                    say_how_config_is_kept(spec);
                }
            }
        },
    },
];

/// The configuration of an instance was plain text at first; now it states whether it is sealed. An event of another form is
/// unchanged: it does not decode, and is set aside.
fn say_how_config_is_kept(spec: &mut Value) {
    if let Some(config) = spec.get_mut("config")
        && config.is_string()
    {
        *config = json!({"plain": config.take()});
    }
}

/// Whether there is more than one version of an event.
pub(crate) fn has_steps(aggregate_type: &str, event_type: &str) -> bool {
    UPCASTERS.iter().any(|step| step.aggregate_type == aggregate_type && step.event_type == event_type)
}

/// Brings the `payload` of an event up to its newest version by the built-in steps.
pub(crate) fn upcast_builtin(aggregate_type: &str, event_type: &str, version: &str, payload: &mut Value) {
    upcast(UPCASTERS, aggregate_type, event_type, version, payload);
}

/// Converts `payload` to the newest version that `steps` know.
pub fn upcast(
    steps: &[Upcaster],
    aggregate_type: &str,
    event_type: &str,
    version: &str,
    payload: &mut Value,
) {
    let Ok(mut version) = version.parse::<u32>() else { return };
    let step = |version: u32| {
        steps.iter().find(|step| {
            step.aggregate_type == aggregate_type && step.event_type == event_type && step.from == version
        })
    };
    while let Some(next) = step(version) {
        (next.apply)(payload);
        version += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: &[Upcaster] = &[
        Upcaster {
            aggregate_type: "job",
            event_type: "job_created",
            from: 1,
            apply: |event| event["b"] = json!(1),
        },
        Upcaster {
            aggregate_type: "job",
            event_type: "job_created",
            from: 2,
            apply: |event| event["c"] = json!(2),
        },
    ];

    #[test]
    fn steps_follow_each_other() {
        let mut payload = json!({"a": 0});
        upcast(STEPS, "job", "job_created", "1", &mut payload);
        assert_eq!(payload, json!({"a": 0, "b": 1, "c": 2}));
    }

    #[test]
    fn newer_events_skip_the_steps_before_them() {
        let mut payload = json!({"a": 0, "b": 9});
        upcast(STEPS, "job", "job_created", "2", &mut payload);
        assert_eq!(payload, json!({"a": 0, "b": 9, "c": 2}));
    }

    #[test]
    fn a_payload_of_another_form_is_left_alone() {
        for payload in [json!("text"), json!([]), json!({"from": 1, "to": null})] {
            for word in ["plugin_instance_created", "plugin_instance_updated"] {
                let mut changed = payload.clone();
                upcast_builtin("plugin_instance", word, "1", &mut changed);
                assert_eq!(changed, payload, "{word}");
            }
        }
    }

    #[test]
    fn other_events_are_left_alone() {
        let mut payload = json!({});
        upcast(STEPS, "job", "job_deleted", "1", &mut payload);
        assert_eq!(payload, json!({}));
    }
}
