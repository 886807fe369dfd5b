//! Models, as RedisAI has them: stored, given back, and run by whatever the server was given for it.

use super::super::error::CommandError;
use super::super::model_call::ModelCall;
use super::super::number::{count_argument, integer, is, unsigned};
use super::super::outcome::Outcome;
use super::super::table::owned;
use super::super::value::{Model, Value};
use super::{Call, Command, Flags, NO_KEYS, ONE_KEY, tensors};
use bytes::Bytes;
use phalanx_resp::Reply;
use std::sync::Arc;
use std::time::Duration;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("ai._modelscan", 1, Flags::READ, NO_KEYS, modelscan),
    Command::new("ai.config", -2, Flags::ADMIN, NO_KEYS, config),
    Command::new("ai.info", -2, Flags::READ, ONE_KEY, info),
    Command::new("ai.modeldel", 2, Flags::WRITE, ONE_KEY, modeldel),
    Command::with_outcome("ai.modelexecute", -6, Flags::GROW, ONE_KEY, modelexecute),
    Command::new("ai.modelget", -2, Flags::READ, ONE_KEY, modelget),
    Command::new("ai.modellist", 1, Flags::READ, NO_KEYS, modelscan),
    Command::with_outcome("ai.modelrun", -5, Flags::GROW, ONE_KEY, modelrun),
    Command::new("ai.modelset", -5, Flags::GROW, ONE_KEY, |call| modelstore(call, false)),
    Command::new("ai.modelstore", -5, Flags::GROW, ONE_KEY, |call| modelstore(call, true)),
];

const BACKENDS: [&str; 4] = ["TF", "TFLITE", "TORCH", "ONNX"];

pub(super) fn device(word: &Bytes) -> Result<Bytes, CommandError> {
    let upper = word.to_ascii_uppercase();
    let known = upper.starts_with(b"CPU") || upper.starts_with(b"GPU");
    if known && word.len() < 64 { Ok(upper.into()) } else { Err(CommandError::Device) }
}

/// Takes names until the next word of the syntax; or, with `counted`, as many as the number before them says.
fn names<'a>(rest: &mut &'a [Bytes], counted: bool, ends: &[&str]) -> Result<&'a [Bytes], CommandError> {
    let all = *rest;
    let (taken, left) = if counted {
        let (number, after) = all.split_first().ok_or(CommandError::Syntax)?;
        after.split_at_checked(count_argument(number)?).ok_or(CommandError::Syntax)?
    } else {
        let end = all.iter().position(|word| ends.iter().any(|end| is(word, end))).unwrap_or(all.len());
        all.split_at(end)
    };
    *rest = left;
    Ok(taken)
}

fn number(rest: &mut &[Bytes]) -> Result<u64, CommandError> {
    let (number, after) = rest.split_first().ok_or(CommandError::Syntax)?;
    *rest = after;
    unsigned(number).ok_or(CommandError::NotInteger)
}

fn modelstore(call: &mut Call<'_>, counted: bool) -> Result<Reply, CommandError> {
    let backend = BACKENDS.into_iter().find(|name| is(call.arg(2), name)).ok_or(CommandError::Backend)?;
    let mut model = Model {
        backend,
        device: device(call.arg(3))?,
        tag: Bytes::new(),
        batch_size: 0,
        min_batch_size: 0,
        min_batch_timeout: 0,
        inputs: Vec::new(),
        outputs: Vec::new(),
        blob: Bytes::new(),
    };
    let mut rest = call.rest(4);
    let mut chunks: Option<&[Bytes]> = None;
    while let Some((word, after)) = rest.split_first() {
        rest = after;
        if is(word, "tag") {
            let (tag, after) = rest.split_first().ok_or(CommandError::Syntax)?;
            model.tag = owned(tag);
            rest = after;
        } else if is(word, "batchsize") {
            model.batch_size = number(&mut rest)?;
        } else if is(word, "minbatchsize") {
            model.min_batch_size = number(&mut rest)?;
        } else if is(word, "minbatchtimeout") {
            model.min_batch_timeout = number(&mut rest)?;
        } else if is(word, "inputs") {
            model.inputs = names(&mut rest, counted, &["outputs", "blob"])?.iter().map(owned).collect();
        } else if is(word, "outputs") {
            model.outputs = names(&mut rest, counted, &["blob"])?.iter().map(owned).collect();
        } else if is(word, "blob") {
            chunks = Some(std::mem::take(&mut rest));
        } else {
            return Err(CommandError::Syntax);
        }
    }
    model.blob = match chunks {
        None | Some([]) => return Err(CommandError::NoBlob),
        Some([blob]) => owned(blob),
        Some(chunks) => chunks.concat().into(),
    };
    let key = call.arg(1);
    call.store.database.put(key, Value::Model(Arc::new(model)), None);
    call.store.runs.insert(owned(key), Default::default());
    Ok(Reply::OK)
}

fn model(call: &mut Call<'_>, key: &Bytes) -> Result<Arc<Model>, CommandError> {
    match call.read(key) {
        None => Err(CommandError::NoModel),
        Some(Value::Model(model)) => Ok(model.clone()),
        Some(_) => Err(CommandError::WrongType),
    }
}

fn modelget(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let (mut meta, mut blob) = (false, false);
    for word in call.rest(2) {
        if is(word, "meta") {
            meta = true;
        } else if is(word, "blob") {
            blob = true;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    let model = model(call, call.arg(1))?;
    if blob && !meta {
        return Ok(Reply::Bulk(model.blob.clone()));
    }
    let count = |n: u64| Reply::Integer(i64::try_from(n).unwrap_or(i64::MAX));
    let mut fields = vec![
        ("backend", Reply::bulk(model.backend)),
        ("device", Reply::Bulk(model.device.clone())),
        ("tag", Reply::Bulk(model.tag.clone())),
        ("batchsize", count(model.batch_size)),
        ("minbatchsize", count(model.min_batch_size)),
        ("inputs", Reply::bulks(model.inputs.iter().cloned())),
        ("outputs", Reply::bulks(model.outputs.iter().cloned())),
        ("minbatchtimeout", count(model.min_batch_timeout)),
    ];
    if blob || !meta {
        fields.push(("blob", Reply::Bulk(model.blob.clone())));
    }
    Ok(Reply::Array(fields.into_iter().flat_map(|(name, value)| [Reply::bulk(name), value]).collect()))
}

fn modeldel(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let key = call.arg(1);
    model(call, key)?;
    call.store.database.remove(call.now, key);
    call.store.runs.remove(key);
    Ok(Reply::OK)
}

fn modelscan(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let models = call.store.database.table().iter().filter_map(|(key, entry)| match &entry.value {
        Value::Model(model) => Some(Reply::bulks([key.clone(), model.tag.clone()])),
        _ => None,
    });
    Ok(Reply::Array(models.collect()))
}

fn modelexecute(call: &mut Call<'_>) -> Result<Outcome, CommandError> {
    let mut rest = call.rest(2);
    let (mut inputs, mut outputs, mut timeout) = (None, None, None);
    while let Some((word, after)) = rest.split_first() {
        rest = after;
        if is(word, "inputs") {
            inputs = Some(names(&mut rest, true, &[])?);
        } else if is(word, "outputs") {
            outputs = Some(names(&mut rest, true, &[])?);
        } else if is(word, "timeout") {
            timeout = Some(Duration::from_millis(number(&mut rest)?));
        } else {
            return Err(CommandError::Syntax);
        }
    }
    let (Some(inputs), Some(outputs)) = (inputs, outputs) else { return Err(CommandError::Syntax) };
    run(call, inputs, outputs, timeout)
}

/// The older form, without counts.
fn modelrun(call: &mut Call<'_>) -> Result<Outcome, CommandError> {
    let mut rest = call.rest(2);
    let mut timeout = None;
    if let [word, after @ ..] = rest
        && is(word, "timeout")
    {
        rest = after;
        timeout = Some(Duration::from_millis(number(&mut rest)?));
    }
    let Some((word, after)) = rest.split_first() else { return Err(CommandError::Syntax) };
    if !is(word, "inputs") {
        return Err(CommandError::Syntax);
    }
    rest = after;
    let inputs = names(&mut rest, false, &["outputs"])?;
    let (_, outputs) = rest.split_first().ok_or(CommandError::Syntax)?;
    run(call, inputs, outputs, timeout)
}

fn run(
    call: &mut Call<'_>,
    inputs: &[Bytes],
    outputs: &[Bytes],
    timeout: Option<Duration>,
) -> Result<Outcome, CommandError> {
    let key = call.arg(1);
    let model = model(call, key)?;
    if model.backend != "ONNX" {
        return Err(CommandError::NotRunnable(model.backend));
    }
    if !call.store.settings.facts.runs_models {
        return Err(CommandError::NoRunner);
    }
    let inputs = inputs.iter().map(|input| tensors::tensor(call, input)).collect::<Result<_, _>>()?;
    let introduced = call.store.sessions.get(&call.client).is_none_or(|session| session.introduced);
    Ok(Outcome::Run(Box::new(ModelCall {
        key: owned(key),
        model,
        inputs,
        outputs: outputs.iter().map(owned).collect(),
        timeout,
        began: call.now,
        padding: !introduced,
    })))
}

fn info(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    let key = call.arg(1);
    let (kind, backend, device, tag) = match call.read(key) {
        Some(Value::Model(model)) => ("MODEL", model.backend, model.device.clone(), model.tag.clone()),
        Some(Value::Script(script)) => ("SCRIPT", "TORCH", script.device.clone(), script.tag.clone()),
        Some(_) => return Err(CommandError::WrongType),
        None => return Err(CommandError::NoModelOrScript),
    };
    match call.rest(2) {
        [] => {}
        [word] if is(word, "resetstat") => drop(call.store.runs.insert(owned(key), Default::default())),
        _ => return Err(CommandError::Syntax),
    }
    let run = call.store.runs.get(key).copied().unwrap_or_default();
    let count = |n: u64| Reply::Integer(i64::try_from(n).unwrap_or(i64::MAX));
    let micros = u64::try_from(run.duration.as_micros()).unwrap_or(u64::MAX);
    let fields = [
        ("key", Reply::Bulk(owned(key))),
        ("type", Reply::bulk(kind)),
        ("backend", Reply::bulk(backend)),
        ("device", Reply::Bulk(device)),
        ("tag", Reply::Bulk(tag)),
        ("duration", count(micros)),
        ("samples", count(run.samples)),
        ("calls", count(run.calls)),
        ("errors", count(run.errors)),
    ];
    Ok(Reply::Array(fields.into_iter().flat_map(|(name, value)| [Reply::bulk(name), value]).collect()))
}

fn config(call: &mut Call<'_>) -> Result<Reply, CommandError> {
    match call.rest(1) {
        [get, name] if is(get, "get") && is(name, "model_chunk_size") => {
            Ok(Reply::Integer(call.store.model_chunk_size))
        }
        [get, name] if is(get, "get") && is(name, "backendspath") => Ok(Reply::Null),
        [name, size] if is(name, "model_chunk_size") => {
            let size = integer(size).filter(|size| (1..=i64::from(i32::MAX)).contains(size));
            call.store.model_chunk_size = size.ok_or(CommandError::ChunkSize)?;
            Ok(Reply::OK)
        }
        _ => Err(CommandError::Syntax),
    }
}
