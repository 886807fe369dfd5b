//! Values on their way to the server and back.

use crate::value::Value;
use std::error::Error;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type};

impl ToSql for Value {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match (self, ty) {
            (Value::Null, _) => Ok(IsNull::Yes),
            (Value::Int(value), &Type::INT4) => i32::try_from(*value)?.to_sql(ty, out),
            (Value::Int(value), &Type::FLOAT8) => (*value as f64).to_sql(ty, out),
            (Value::Int(value), _) => value.to_sql(ty, out),
            (Value::Real(value), &Type::INT8) => (*value as i64).to_sql(ty, out),
            (Value::Real(value), _) => value.to_sql(ty, out),
            // PostgreSQL has no text with this character.
            (Value::Text(text), _) if text.contains('\0') => text.replace('\0', "\u{fffd}").to_sql(ty, out),
            (Value::Text(text), _) => text.to_sql(ty, out),
        }
    }

    fn accepts(ty: &Type) -> bool {
        matches!(*ty, Type::INT4 | Type::INT8 | Type::FLOAT8 | Type::TEXT | Type::VARCHAR | Type::NAME)
    }

    tokio_postgres::types::to_sql_checked!();
}

/// A value of a result.
pub(super) struct Cell(pub(super) Value);

impl<'a> FromSql<'a> for Cell {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Cell(match *ty {
            Type::BOOL => Value::Int(i64::from(bool::from_sql(ty, raw)?)),
            Type::INT4 => Value::Int(i64::from(i32::from_sql(ty, raw)?)),
            Type::INT8 => Value::Int(i64::from_sql(ty, raw)?),
            Type::FLOAT8 => Value::Real(f64::from_sql(ty, raw)?),
            _ => Value::Text(String::from_sql(ty, raw)?),
        }))
    }

    fn from_sql_null(_ty: &Type) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Cell(Value::Null))
    }

    fn accepts(ty: &Type) -> bool {
        let known =
            matches!(*ty, Type::BOOL | Type::INT4 | Type::INT8 | Type::FLOAT8 | Type::TEXT | Type::NAME);
        // What the functions of PostgreSQL that return nothing return.
        known || *ty == Type::VARCHAR || *ty == Type::VOID
    }
}
