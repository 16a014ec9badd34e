//! Settings of a resource as one list of fields: a new resource has them, a change names some of them, and an answer shows
//! all of them.

use std::{borrow::Cow, marker::PhantomData};

use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        RefOr,
        schema::{Object, Schema, SchemaType, Type},
    },
};

use crate::http::{extract::from_json, problem::Problem};

/// The fields of a new resource; those that may be absent are options.
pub(crate) trait Settings: Serialize + DeserializeOwned + ToSchema {
    /// Fields that null clears. The others are never null in a change or an answer.
    const CLEARABLE: &'static [&'static str];
}

/// The body of a change: absent fields stay as they are. Whether the others fit is known when it is made.
#[derive(Debug)]
pub(crate) struct Changes<S> {
    fields: Map<String, Value>,
    settings: PhantomData<S>,
}

impl<'de, S> Deserialize<'de> for Changes<S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self { fields: Map::deserialize(deserializer)?, settings: PhantomData })
    }
}

impl<S: Settings> Changes<S> {
    /// `now` with these changes.
    ///
    /// # Errors
    /// A [`Problem`] that names the field that does not fit.
    pub(crate) fn made_to(&self, now: &S) -> Result<S, Problem> {
        let mut changed = serde_json::to_value(now).map_err(|error| Problem::internal(&error))?;
        for (name, value) in &self.fields {
            match changed.get_mut(name) {
                Some(_) if value.is_null() && !S::CLEARABLE.contains(&name.as_str()) => {
                    return Err(Problem::field(name, "must not be null: leave it out to keep it as it is"));
                }
                Some(Value::Object(now)) if value.is_object() => {
                    let parts = value.as_object().into_iter().flatten().filter(|(_, part)| !part.is_null());
                    now.extend(parts.map(|(name, part)| (name.clone(), part.clone())));
                }
                Some(now) => now.clone_from(value),
                None => {}
            }
        }
        from_json(changed)
    }
}

impl<S: Settings> PartialSchema for Changes<S> {
    fn schema() -> RefOr<Schema> {
        let mut changes = object(S::schema());
        changes.description = Some("Changes; absent fields stay as they are, null clears.".to_owned());
        changes.required.clear();
        for (name, property) in &mut changes.properties {
            if !S::CLEARABLE.contains(&name.as_str()) {
                leave_null_out(property);
            }
        }
        RefOr::T(Schema::Object(changes))
    }
}

impl<S: Settings> ToSchema for Changes<S> {
    fn name() -> Cow<'static, str> {
        let of_new = S::name();
        format!("{}ChangesIn", of_new.strip_suffix("In").unwrap_or(&of_new)).into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        S::schemas(schemas);
    }
}

/// A resource in an answer: its settings, all of them given, and what only the service knows.
#[derive(Debug, Serialize)]
pub(crate) struct Shown<O, S> {
    #[serde(flatten)]
    pub(crate) own: O,
    #[serde(flatten)]
    pub(crate) settings: S,
}

impl<O: ToSchema, S: Settings> PartialSchema for Shown<O, S> {
    fn schema() -> RefOr<Schema> {
        let (mut shown, mut settings) = (object(O::schema()), object(S::schema()));
        give_all(&mut settings, S::CLEARABLE);
        shown.properties.extend(settings.properties);
        shown.required.extend(settings.required);
        RefOr::T(Schema::Object(shown))
    }
}

impl<O: ToSchema, S: Settings> ToSchema for Shown<O, S> {
    fn name() -> Cow<'static, str> {
        O::name()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        O::schemas(schemas);
        let mut parts = Vec::new();
        S::schemas(&mut parts);
        schemas.extend(parts.into_iter().map(|(name, schema)| match name.strip_suffix("In") {
            Some(part) => {
                let mut shown = object(schema);
                give_all(&mut shown, &[]);
                (format!("{part}Out"), RefOr::T(Schema::Object(shown)))
            }
            None => (name, schema),
        }));
    }
}

/// Makes the fields of a request those of an answer: all are given, and only those that can be cleared are ever null.
fn give_all(settings: &mut Object, clearable: &[&str]) {
    settings.required.clear();
    for (name, property) in &mut settings.properties {
        if !clearable.contains(&name.as_str()) {
            leave_null_out(property);
            settings.required.push(name.clone());
        }
        if let RefOr::Ref(part) = property
            && let Some(name) = part.ref_location.strip_suffix("In")
        {
            part.ref_location = format!("{name}Out");
        }
    }
}

fn object(schema: RefOr<Schema>) -> Object {
    match schema {
        RefOr::T(Schema::Object(object)) => object,
        RefOr::T(_) | RefOr::Ref(_) => Object::default(),
    }
}

fn leave_null_out(property: &mut RefOr<Schema>) {
    match property {
        RefOr::T(Schema::Object(object)) => {
            if let SchemaType::Array(types) = &mut object.schema_type {
                types.retain(|kind| *kind != Type::Null);
                if let [only] = types.as_slice() {
                    object.schema_type = SchemaType::Type(only.clone());
                }
            }
        }
        RefOr::T(Schema::OneOf(choice)) => {
            if let Some(other) = choice.items.iter().find(|item| !is_null(item)).cloned() {
                *property = other;
            }
        }
        RefOr::T(_) | RefOr::Ref(_) => {}
    }
}

fn is_null(schema: &RefOr<Schema>) -> bool {
    matches!(schema, RefOr::T(Schema::Object(object)) if object.schema_type == SchemaType::Type(Type::Null))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use signalbox_domain::kernel::FieldPointer;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    struct Lamp {
        name: String,
        is_on: Option<bool>,
        room: Option<String>,
        light: Option<Light>,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    struct Light {
        red: Option<u8>,
        blue: Option<u8>,
    }

    impl Settings for Lamp {
        const CLEARABLE: &'static [&'static str] = &["room"];
    }

    fn changed(changes: Value) -> Result<Lamp, Problem> {
        let light = Some(Light { red: Some(1), blue: Some(2) });
        let now = Lamp { name: "door".into(), is_on: Some(true), room: Some("hall".into()), light };
        serde_json::from_value::<Changes<Lamp>>(changes).unwrap().made_to(&now)
    }

    #[test]
    fn absent_fields_stay_and_null_clears() {
        let lamp = changed(json!({"room": null, "light": {"red": 9, "blue": null}, "unknown": 1})).unwrap();
        let light = Some(Light { red: Some(9), blue: Some(2) });
        assert_eq!(lamp, Lamp { name: "door".into(), is_on: Some(true), room: None, light });
    }

    #[test]
    fn a_field_that_does_not_fit_is_named() {
        for (changes, pointer) in [
            (json!({"name": null}), "/name"),
            (json!({"is_on": null}), "/is_on"),
            (json!({"is_on": "yes"}), "/is_on"),
            (json!({"light": {"red": -1}}), "/light/red"),
            (json!({"light": 1}), "/light"),
        ] {
            let problem = changed(changes).unwrap_err();
            assert_eq!(problem.pointer().map(FieldPointer::as_str), Some(pointer));
        }
    }
}
