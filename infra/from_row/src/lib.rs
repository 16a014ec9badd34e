//! Derives structs from rows of PostgreSQL.
//!
//! The macros of sqlx make Cargo build sqlx, tokio and TLS once more, for the compiler to run, and their structs are read by
//! code that is generic over databases: each crate that reads one compiles it again.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::{Data, DataStruct, DeriveInput, Error, Field, Fields, Type, ext::IdentExt, spanned::Spanned};

/// Derives `sqlx::FromRow` for rows of PostgreSQL: each field is the column of its name.
///
/// | Attribute of a field | Its value |
/// |---|---|
/// | `#[row(flatten)]` | another struct of this row |
/// | `#[row(json)]` | what the JSON of the column stands for |
/// | `#[row(json_or_null)]` | the same for an `Option`, which is `None` for NULL |
/// | `#[row(default)]` | the default, if the row lacks this column |
#[proc_macro_derive(FromRow, attributes(row))]
pub fn from_row(item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let item = syn::parse_macro_input!(item as DeriveInput);
    reading(&item).unwrap_or_else(Error::into_compile_error).into()
}

fn reading(item: &DeriveInput) -> syn::Result<TokenStream> {
    let Data::Struct(DataStruct { fields: Fields::Named(fields), .. }) = &item.data else {
        return Err(Error::new_spanned(&item.ident, "only a struct with named fields is read from a row"));
    };
    if !item.generics.params.is_empty() {
        return Err(Error::new_spanned(&item.generics, "a struct that is read from a row has no parameters"));
    }
    let name = &item.ident;
    let values = fields.named.iter().map(value).collect::<syn::Result<Vec<_>>>()?;
    Ok(quote! {
        #[automatically_derived]
        impl<'r> ::sqlx::FromRow<'r, ::sqlx::postgres::PgRow> for #name {
            fn from_row(row: &'r ::sqlx::postgres::PgRow) -> ::sqlx::Result<Self> {
                ::std::result::Result::Ok(Self { #(#values),* })
            }
        }
    })
}

/// How the value of a field is found.
enum Source {
    Column,
    Flattened,
    Json,
    JsonOrNull,
    ColumnOrDefault,
}

impl Source {
    fn of(field: &Field) -> syn::Result<Self> {
        let mut source = Self::Column;
        for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("row")) {
            let word: syn::Ident = attribute.parse_args()?;
            source = match word.to_string().as_str() {
                "flatten" => Self::Flattened,
                "json" => Self::Json,
                "json_or_null" => Self::JsonOrNull,
                "default" => Self::ColumnOrDefault,
                _ => {
                    return Err(Error::new(
                        word.span(),
                        "write `flatten`, `json`, `json_or_null` or `default`",
                    ));
                }
            };
        }
        Ok(source)
    }
}

fn value(field: &Field) -> syn::Result<TokenStream> {
    let (name, kind): (_, &Type) = (&field.ident, &field.ty);
    let column = name.as_ref().map(|name| name.unraw().to_string());
    // Errors of types are shown at the field.
    let value = match Source::of(field)? {
        Source::Column => quote_spanned!(kind.span()=> ::sqlx::Row::try_get::<#kind, _>(row, #column)?),
        Source::Flattened => {
            quote_spanned!(kind.span()=> <#kind as ::sqlx::FromRow<'r, ::sqlx::postgres::PgRow>>::from_row(row)?)
        }
        Source::Json => {
            quote_spanned!(kind.span()=> ::sqlx::Row::try_get::<::sqlx::types::Json<#kind>, _>(row, #column)?.0)
        }
        Source::JsonOrNull => quote_spanned! {kind.span()=>
            ::sqlx::Row::try_get::<::std::option::Option<::sqlx::types::Json<_>>, _>(row, #column)?.map(|json| json.0)
        },
        Source::ColumnOrDefault => quote_spanned! {kind.span()=>
            match ::sqlx::Row::try_get::<#kind, _>(row, #column) {
                ::std::result::Result::Err(::sqlx::Error::ColumnNotFound(_)) => ::std::default::Default::default(),
                value => value?,
            }
        },
    };
    Ok(quote!(#name: #value))
}
