use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{DashboardCommand, DashboardEvent, NewDashboard, PlacedWidget, WidgetChanges, WidgetSpec};
use crate::{
    kernel::{ChannelId, Claim, ClaimOp, Decider, Rejection, WidgetId, required_text},
    monitoring::channel::CHANNEL_CLAIM,
};

/// Longest name, in characters.
pub const MAX_NAME: usize = 255;
/// Widgets on one dashboard at most.
pub const MAX_WIDGETS: usize = 200;

/// A grid of widgets.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Dashboard {
    present: Option<Present>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Present {
    name: String,
    is_global: bool,
    /// As they were set here. Links to deleted channels are removed only in the read model.
    widgets: BTreeMap<WidgetId, WidgetSpec>,
}

impl Decider for Dashboard {
    const TYPE: &'static str = "dashboard";
    const CONTEXT: &'static str = "monitoring";
    const STATE_VERSION: i32 = 1;
    type Command = DashboardCommand;
    type Event = DashboardEvent;

    fn decide(&self, command: DashboardCommand) -> Result<Vec<DashboardEvent>, Rejection> {
        let Some(present) = &self.present else {
            return match command {
                DashboardCommand::Create(new) => {
                    let name = required_text("name", &new.name, MAX_NAME)?;
                    Ok(vec![DashboardEvent::DashboardCreated(NewDashboard { name, ..new })])
                }
                _ => Err(Rejection::not_found("Dashboard")),
            };
        };
        match command {
            DashboardCommand::Create(_) => {
                Err(Rejection::conflict("dashboard_exists", "This dashboard exists already."))
            }
            DashboardCommand::Change { name, is_global } => present.change(name, is_global),
            DashboardCommand::Delete => {
                Ok(vec![DashboardEvent::DashboardDeleted { name: present.name.clone() }])
            }
            DashboardCommand::AddWidget { widget, spec } => present.add_widget(widget, spec),
            DashboardCommand::ChangeWidget { widget, changes } => present.change_widget(widget, changes),
            DashboardCommand::RemoveWidget { widget } => {
                present.widget(widget)?;
                Ok(vec![DashboardEvent::WidgetRemoved { widget }])
            }
            DashboardCommand::Restore { name, is_global, widgets } => {
                present.restore(&name, is_global, widgets)
            }
        }
    }

    fn evolve(&mut self, event: DashboardEvent) {
        match (event, &mut self.present) {
            (DashboardEvent::DashboardCreated(new), present) => {
                let NewDashboard { name, is_global, .. } = new;
                *present = Some(Present { name, is_global, widgets: BTreeMap::new() });
            }
            (DashboardEvent::DashboardUpdated { name, is_global }, Some(present)) => {
                present.name = name;
                present.is_global = is_global;
            }
            (DashboardEvent::DashboardDeleted { .. }, present) => *present = None,
            (DashboardEvent::WidgetAdded { widget, spec }, Some(present)) => {
                present.widgets.insert(widget, spec);
            }
            (DashboardEvent::WidgetUpdated { widget, changes }, Some(present)) => {
                if let Some(spec) = present.widgets.remove(&widget) {
                    present.widgets.insert(widget, spec.with(changes));
                }
            }
            (DashboardEvent::WidgetRemoved { widget }, Some(present)) => {
                present.widgets.remove(&widget);
            }
            (DashboardEvent::DashboardRestored { name, is_global, widgets, .. }, present) => {
                let widgets = widgets.into_iter().map(|placed| (placed.widget, placed.spec)).collect();
                *present = Some(Present { name, is_global, widgets });
            }
            (_, None) => {}
        }
    }

    fn claim_rejection(_op: ClaimOp, _kind: &str) -> Rejection {
        Rejection::not_found("Event")
    }

    fn claims(_id: Uuid, event: &DashboardEvent) -> Vec<Claim> {
        let channels: BTreeSet<ChannelId> = match event {
            DashboardEvent::WidgetAdded { spec, .. } => spec.channel.into_iter().collect(),
            DashboardEvent::WidgetUpdated { changes, .. } => changes.channel.flatten().into_iter().collect(),
            DashboardEvent::DashboardRestored { widgets, .. } => {
                widgets.iter().filter_map(|placed| placed.spec.channel).collect()
            }
            _ => BTreeSet::new(),
        };
        let exists = |ChannelId(id)| Claim::new(ClaimOp::Require, CHANNEL_CLAIM, id.to_string());
        channels.into_iter().map(exists).collect()
    }
}

impl Present {
    fn change(
        &self,
        name: Option<String>,
        is_global: Option<bool>,
    ) -> Result<Vec<DashboardEvent>, Rejection> {
        let name = name.map(|name| required_text("name", &name, MAX_NAME)).transpose()?;
        let (name, is_global) = (name.unwrap_or(self.name.clone()), is_global.unwrap_or(self.is_global));
        let is_same = name == self.name && is_global == self.is_global;
        Ok(if is_same { Vec::new() } else { vec![DashboardEvent::DashboardUpdated { name, is_global }] })
    }

    fn add_widget(&self, widget: WidgetId, spec: WidgetSpec) -> Result<Vec<DashboardEvent>, Rejection> {
        if self.widgets.contains_key(&widget) {
            return Err(Rejection::conflict("widget_exists", "This widget exists already."));
        }
        if self.widgets.len() >= MAX_WIDGETS {
            let message = format!("A dashboard holds at most {MAX_WIDGETS} widgets: use another dashboard.");
            return Err(Rejection::conflict("dashboard_full", message));
        }
        Ok(vec![DashboardEvent::WidgetAdded { widget, spec: spec.validate()? }])
    }

    fn change_widget(
        &self,
        widget: WidgetId,
        changes: WidgetChanges,
    ) -> Result<Vec<DashboardEvent>, Rejection> {
        let from = self.widget(widget)?;
        let channel = changes.channel;
        let to = from.clone().with(changes).validate()?;
        let changes = WidgetChanges::between(from, &to, channel);
        if changes == WidgetChanges::default() {
            return Ok(Vec::new());
        }
        Ok(vec![DashboardEvent::WidgetUpdated { widget, changes }])
    }

    fn restore(
        &self,
        name: &str,
        is_global: bool,
        widgets: Vec<PlacedWidget>,
    ) -> Result<Vec<DashboardEvent>, Rejection> {
        let name = required_text("name", name, MAX_NAME)?;
        let validate = |placed: PlacedWidget| Ok(PlacedWidget { spec: placed.spec.validate()?, ..placed });
        let widgets: Vec<_> = widgets.into_iter().map(validate).collect::<Result<_, Rejection>>()?;
        let back: BTreeMap<_, _> = widgets.iter().map(|placed| (placed.widget, &placed.spec)).collect();
        if back.len() != widgets.len() || back.len() > MAX_WIDGETS {
            let message = format!("A dashboard holds at most {MAX_WIDGETS} widgets, each once.");
            return Err(Rejection::invalid("invalid_field", message));
        }
        let is_same = name == self.name
            && is_global == self.is_global
            && self.widgets.iter().eq(back.iter().map(|(id, spec)| (id, *spec)));
        if is_same {
            return Ok(Vec::new());
        }
        let removed = self.widgets.keys().filter(|widget| !back.contains_key(widget)).copied().collect();
        Ok(vec![DashboardEvent::DashboardRestored { name, is_global, widgets, removed }])
    }

    fn widget(&self, widget: WidgetId) -> Result<&WidgetSpec, Rejection> {
        self.widgets.get(&widget).ok_or_else(|| {
            Rejection::new(crate::kernel::ErrorKind::NotFound, "not_found", "Widget not on this dashboard")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{kernel::UserId, monitoring::WidgetType};

    const WIDGET: WidgetId = WidgetId(Uuid::from_u128(1));
    const CHANNEL: ChannelId = ChannelId(Uuid::from_u128(2));

    fn new(name: &str) -> NewDashboard {
        NewDashboard { owner: UserId(Uuid::nil()), name: name.to_owned(), is_global: false }
    }

    fn spec() -> WidgetSpec {
        WidgetSpec {
            kind: WidgetType::Gauge,
            title: "Boiler".into(),
            channel: Some(CHANNEL),
            x: 0,
            y: 0,
            w: 4,
            h: 3,
            config: None,
        }
    }

    fn dashboard() -> Dashboard {
        let mut dashboard = Dashboard::default();
        dashboard.evolve(DashboardEvent::DashboardCreated(new("Hall")));
        dashboard.evolve(DashboardEvent::WidgetAdded { widget: WIDGET, spec: spec() });
        dashboard
    }

    fn change(changes: WidgetChanges) -> Result<Vec<DashboardEvent>, Rejection> {
        dashboard().decide(DashboardCommand::ChangeWidget { widget: WIDGET, changes })
    }

    #[test]
    fn names_are_trimmed_required_and_bounded() {
        let made = Dashboard::default().decide(DashboardCommand::Create(new(" Hall "))).unwrap();
        assert_eq!(made, vec![DashboardEvent::DashboardCreated(new("Hall"))]);
        for name in ["", " ", "a\0b", &"x".repeat(256)] {
            assert!(Dashboard::default().decide(DashboardCommand::Create(new(name))).is_err(), "{name:?}");
            let rename = DashboardCommand::Change { name: Some(name.to_owned()), is_global: None };
            assert!(dashboard().decide(rename).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_change_says_what_is_different_and_leaves_the_channel_alone() {
        let moved = change(WidgetChanges { x: Some(3), y: Some(0), ..Default::default() }).unwrap();
        let changes = WidgetChanges { x: Some(3), ..Default::default() };
        assert_eq!(moved, vec![DashboardEvent::WidgetUpdated { widget: WIDGET, changes }]);
        assert_eq!(Dashboard::claims(Uuid::nil(), &moved[0]), vec![]);
        assert_eq!(change(WidgetChanges { title: Some(" Boiler".into()), ..Default::default() }), Ok(vec![]));
    }

    #[test]
    fn a_named_channel_is_set_again_because_it_may_have_been_unlinked() {
        let set = change(WidgetChanges { channel: Some(Some(CHANNEL)), ..Default::default() }).unwrap();
        let required = Claim::new(ClaimOp::Require, CHANNEL_CLAIM, CHANNEL.to_string());
        assert_eq!(Dashboard::claims(Uuid::nil(), &set[0]), vec![required]);
        let cleared = change(WidgetChanges { channel: Some(None), ..Default::default() }).unwrap();
        assert_eq!((cleared.len(), Dashboard::claims(Uuid::nil(), &cleared[0])), (1, vec![]));
    }

    #[test]
    fn a_widget_that_is_elsewhere_is_not_found() {
        let widget = WidgetId(Uuid::from_u128(9));
        let changes = WidgetChanges::default();
        for command in
            [DashboardCommand::RemoveWidget { widget }, DashboardCommand::ChangeWidget { widget, changes }]
        {
            let refused = dashboard().decide(command).unwrap_err();
            assert!(refused.message.contains("Widget not on this dashboard"));
        }
    }

    fn restore(dashboard: &Dashboard, widgets: Vec<PlacedWidget>) -> Result<Vec<DashboardEvent>, Rejection> {
        dashboard.decide(DashboardCommand::Restore { name: "Hall".into(), is_global: false, widgets })
    }

    #[test]
    fn a_restored_dashboard_has_the_widgets_that_came_back_and_no_others() {
        let back = PlacedWidget { widget: WidgetId(Uuid::from_u128(9)), added_at: 3, spec: spec() };
        let mut dashboard = dashboard();
        let restored = restore(&dashboard, vec![back.clone()]).unwrap();
        let expected = DashboardEvent::DashboardRestored {
            name: "Hall".into(),
            is_global: false,
            widgets: vec![back.clone()],
            removed: vec![WIDGET],
        };
        assert_eq!(restored, vec![expected]);
        let required = Claim::new(ClaimOp::Require, CHANNEL_CLAIM, CHANNEL.to_string());
        assert_eq!(Dashboard::claims(Uuid::nil(), &restored[0]), vec![required]);
        restored.into_iter().for_each(|event| dashboard.evolve(event));
        assert_eq!(restore(&dashboard, vec![back.clone()]), Ok(vec![]));
        let remove = DashboardCommand::RemoveWidget { widget: back.widget };
        assert_eq!(dashboard.decide(remove).unwrap().len(), 1);
        assert!(restore(&dashboard, vec![back.clone(), back]).is_err());
        assert!(restore(&Dashboard::default(), vec![]).is_err());
    }

    #[test]
    fn a_dashboard_is_full_at_two_hundred_widgets() {
        let mut dashboard = dashboard();
        for number in 2..=MAX_WIDGETS as u128 {
            let add = DashboardCommand::AddWidget { widget: WidgetId(Uuid::from_u128(number)), spec: spec() };
            for event in dashboard.decide(add).unwrap() {
                dashboard.evolve(event);
            }
        }
        let add = DashboardCommand::AddWidget { widget: WidgetId(Uuid::from_u128(9999)), spec: spec() };
        assert_eq!(dashboard.decide(add).unwrap_err().code, "dashboard_full");
    }
}
