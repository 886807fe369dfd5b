//! One session with the server.

use super::ROWS;
use super::values::Cell;
use crate::error::SqlError;
use crate::shell::sql::PointRow;
use crate::value::{Row, Value};
use std::collections::BTreeMap;
use std::sync::mpsc::SyncSender;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

/// Statements that are kept prepared.
const KEPT: usize = 64;

pub(super) struct Session {
    pub(super) client: Client,
    prepared: BTreeMap<String, Statement>,
}

impl Session {
    pub(super) fn new(client: Client) -> Self {
        Self { client, prepared: BTreeMap::new() }
    }

    async fn prepare(&mut self, sql: &str) -> Result<Statement, SqlError> {
        if let Some(statement) = self.prepared.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        if self.prepared.len() >= KEPT {
            self.prepared.clear();
        }
        self.prepared.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    pub(super) async fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, SqlError> {
        let statement = self.prepare(sql).await?;
        Ok(self.client.execute_raw(&statement, values).await?)
    }

    pub(super) async fn query(
        &mut self,
        sql: &str,
        values: &[Value],
        reply: &SyncSender<Result<Vec<Row>, SqlError>>,
    ) {
        if let Err(error) = self.query_rows(sql, values, reply).await {
            // A caller that is gone needs no error.
            let _told = reply.send(Err(error));
        }
    }

    async fn query_rows(
        &mut self,
        sql: &str,
        values: &[Value],
        reply: &SyncSender<Result<Vec<Row>, SqlError>>,
    ) -> Result<(), SqlError> {
        let statement = self.prepare(sql).await?;
        let rows = self.client.query_raw(&statement, values).await?;
        let mut rows = std::pin::pin!(rows);
        let mut some = Vec::new();
        while let Some(row) = next(rows.as_mut()).await {
            let row = row?;
            let cells = (0..row.len()).map(|at| row.try_get::<_, Cell>(at).map(|cell| cell.0));
            some.push(Row(cells.collect::<Result<_, _>>()?));
            if some.len() == ROWS && reply.send(Ok(std::mem::take(&mut some))).is_err() {
                return Ok(());
            }
        }
        let _told = reply.send(Ok(some));
        Ok(())
    }

    /// One statement for all points: arrays are rows of a table.
    pub(super) async fn points(&mut self, points: &[PointRow]) -> Result<(), SqlError> {
        let insert = "insert into point (series, step, ord, unix_ms, value) \
                      select * from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::float8[])";
        let statement = self.prepare(insert).await?;
        let series: Vec<i64> = points.iter().map(|point| point.series).collect();
        let steps: Vec<i64> = points.iter().map(|point| point.step).collect();
        let orders: Vec<i64> = points.iter().map(|point| point.ord).collect();
        let times: Vec<Option<i64>> = points.iter().map(|point| point.unix_ms).collect();
        let value = |point: &PointRow| Some(point.value).filter(|value| !value.is_nan());
        let values: Vec<Option<f64>> = points.iter().map(value).collect();
        let columns: [&(dyn ToSql + Sync); 5] = [&series, &steps, &orders, &times, &values];
        self.client.execute(&statement, &columns).await?;
        Ok(())
    }
}

/// The next row of a stream.
async fn next(
    mut rows: std::pin::Pin<&mut tokio_postgres::RowStream>,
) -> Option<Result<tokio_postgres::Row, tokio_postgres::Error>> {
    use futures_core::Stream as _;
    std::future::poll_fn(|context| rows.as_mut().poll_next(context)).await
}
