//! Converts ONNX nodes to ours, one by one and in order.
//!
//! Known values are computed at once ([`eval`]), so the shape arithmetic of exporters leaves no nodes. Functions are
//! inlined. All operators go through [`Lower::apply`], which computes the result or adds a node.

mod call;
mod constant;
mod conv;
mod elementwise;
mod linear;
mod norm;
mod operator;
mod pool;
mod recurrent;
mod reduce;
mod resize;
mod sequence;
mod shape;
mod special;

pub(super) use call::Call;

use super::ImportOptions;
use super::attributes::Attributes;
use super::error::{At, OnnxError};
use super::eval::eval;
use super::lit::{Lit, MOST_ELEMENTS};
use super::proto::{FunctionProto, GraphProto, ModelProto, NodeProto};
use super::scope::scope_of;
use super::source_line::source_line;
use super::tensor::{MOST_DIMENSIONS, Reader};
use crate::{Graph, Op, Shape, Value, ValueId, ValueKind};
use phalanx_types::{DType, Tensor};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

/// The most nodes: inlining may multiply them, and a small file must not become an endless graph.
pub(super) const MOST_NODES: usize = 1 << 17;
const DEEPEST: usize = 24;
/// The most elements of one value per sample.
const MOST_VALUES: usize = 1 << 36;
/// The most elements computed while importing, plus this many for every byte of the file.
const MOST_FOLDED: usize = 1 << 24;
const FOLDED_PER_BYTE: usize = 4;

/// The meaning of a name in the file.
#[derive(Debug, Clone)]
pub(super) enum Val {
    /// A value of our graph.
    Graph(ValueId),
    Lit(Rc<Lit>),
    /// Known, but not decoded yet.
    Tensor(Tensor),
    Seq(Vec<Val>),
    /// An IsNaN mask of a value; only useful for replacing those elements.
    IsNan(ValueId),
    /// Random numbers, uniform in [0, 1).
    Random,
    /// True or 1 with this probability.
    Chance(f64),
    Absent,
}

type Names = HashMap<String, Val>;

/// The state of an import.
#[derive(Debug)]
pub(super) struct Lower<'m> {
    pub graph: Graph,
    /// Module paths of nodes, by the nodes' names.
    pub scopes: BTreeMap<String, String>,
    pub notes: BTreeSet<String>,
    /// The values of parameters and buffers.
    pub tensors: BTreeMap<ValueId, Tensor>,
    /// Parameters and buffers by their names.
    pub parameters: BTreeMap<String, ValueId>,
    /// The batch size the file was made for, if the file fixes it and it is treated as open.
    pub batch_hint: Option<usize>,
    pub reader: Reader,
    functions: BTreeMap<(String, String), &'m FunctionProto>,
    names: BTreeMap<String, usize>,
    frames: Vec<Names>,
    lowered: usize,
    folded: usize,
    most_folded: usize,
    depth: usize,
    /// The node that makes a value.
    makers: HashMap<ValueId, usize>,
}

impl<'m> Lower<'m> {
    /// `bytes` is the size of the file with its external tensors.
    pub(super) fn new(model: &'m ModelProto, reader: Reader, options: &ImportOptions, bytes: usize) -> Self {
        let key =
            |f: &FunctionProto| (f.domain.clone().unwrap_or_default(), f.name.clone().unwrap_or_default());
        Self {
            graph: Graph { name: options.name.clone(), ..Graph::default() },
            scopes: BTreeMap::new(),
            notes: BTreeSet::new(),
            tensors: BTreeMap::new(),
            parameters: BTreeMap::new(),
            batch_hint: None,
            reader,
            functions: model.functions.iter().map(|f| (key(f), f)).collect(),
            names: BTreeMap::new(),
            frames: vec![Names::new()],
            lowered: 0,
            folded: 0,
            most_folded: bytes.saturating_mul(FOLDED_PER_BYTE).saturating_add(MOST_FOLDED),
            depth: 0,
            makers: HashMap::new(),
        }
    }

    /// Assigns a meaning to a name of the file.
    pub(super) fn bind(&mut self, name: &str, val: Val) {
        if let Some(frame) = self.frames.last_mut() {
            frame.insert(name.to_owned(), val);
        }
    }

    /// Lowers nodes in their order.
    pub(super) fn nodes(
        &mut self,
        nodes: &[NodeProto],
        opset: i64,
        of: Option<&Body<'_>>,
    ) -> Result<(), OnnxError> {
        for (position, node) in nodes.iter().enumerate() {
            let lowered = self.file_node(node, position, opset, of);
            lowered.map_err(|error| error.with_source(|| source_line(node)))?;
        }
        Ok(())
    }

    /// Lowers one node of the file.
    fn file_node(
        &mut self,
        node: &NodeProto,
        position: usize,
        opset: i64,
        of: Option<&Body<'_>>,
    ) -> Result<(), OnnxError> {
        self.lowered += 1;
        if self.lowered > MOST_NODES {
            return Err(OnnxError::Limit { what: "nodes", most: MOST_NODES });
        }
        let attributes = Attributes::of(node, of.map(|b| b.attributes), of.map_or(&[], |b| b.defaults));
        let at = Box::new(At {
            op: node.op_type.clone().unwrap_or_default(),
            domain: node.domain.clone().filter(|d| d != "ai.onnx").unwrap_or_default(),
            node: node.name.clone().unwrap_or_default(),
            position,
            source: None,
        });
        let mut inputs = Vec::with_capacity(node.input.len());
        for name in &node.input {
            inputs.push(if name.is_empty() { Val::Absent } else { self.lookup(name, &at)? });
        }
        let scope = scope_of(node).or_else(|| of.and_then(|b| b.scope.clone()));
        let name = self.name_for(node, &at);
        // A function's body is stored once, but its nodes are made for every call.
        let text = name.len() + scope.as_ref().map_or(0, String::len);
        self.spend_on("bytes in names and lists of nodes", text + attributes.size() + inputs.len())?;
        let outputs = node.output.iter().map(|o| !o.is_empty()).collect();
        let call = Call { at, attributes, inputs, outputs, opset, name, scope };
        let made = self.node(&call)?;
        for val in &made {
            if let Val::Seq(all) = val {
                self.spend(all.len())?;
            }
        }
        for (i, name) in node.output.iter().enumerate().filter(|(_, n)| !n.is_empty()) {
            let taken = self.frames.last().is_some_and(|f| f.contains_key(name));
            if taken {
                return Err(OnnxError::Redefined { value: name.clone(), at: call.at });
            }
            // An output that cannot be made is an error only if it is read.
            self.bind(name, made.get(i).cloned().unwrap_or(Val::Absent));
        }
        Ok(())
    }

    fn node(&mut self, call: &Call) -> Result<Vec<Val>, OnnxError> {
        let key = (call.at.domain.clone(), call.at.op.clone());
        match self.functions.get(&key).copied() {
            Some(function) => self.inline(call, function),
            None => self.operator(call),
        }
    }

    fn inline(&mut self, call: &Call, function: &'m FunctionProto) -> Result<Vec<Val>, OnnxError> {
        self.descend()?;
        let mut names = Names::new();
        for (i, name) in function.input.iter().enumerate() {
            names.insert(name.clone(), call.inputs.get(i).cloned().unwrap_or(Val::Absent));
        }
        // A function sees only its inputs.
        let outside = std::mem::replace(&mut self.frames, vec![names]);
        let body = Body {
            attributes: &call.attributes,
            defaults: &function.attribute_proto,
            scope: call.scope.clone(),
        };
        let opset = default_opset(&function.opset_import).unwrap_or(call.opset);
        let ran = self.nodes(&function.node, opset, Some(&body));
        let inside = std::mem::replace(&mut self.frames, outside);
        self.depth -= 1;
        ran?;
        let result = |name: &String| inside.first().and_then(|f| f.get(name)).cloned().unwrap_or(Val::Absent);
        Ok(function.output.iter().map(result).collect())
    }

    /// Lowers a branch, which sees the names of the enclosing graph.
    pub(super) fn branch(&mut self, call: &Call, graph: &GraphProto) -> Result<Vec<Val>, OnnxError> {
        self.descend()?;
        self.frames.push(Names::new());
        let mut ran = Ok(());
        for proto in &graph.initializer {
            let tensor = self.reader.read(proto)?;
            self.bind(proto.name.as_deref().unwrap_or_default(), Val::Tensor(tensor));
        }
        ran = ran.and_then(|()| self.nodes(&graph.node, call.opset, None));
        let results = ran.and_then(|()| {
            graph
                .output
                .iter()
                .map(|o| self.lookup(o.name.as_deref().unwrap_or_default(), &call.at))
                .collect()
        });
        self.frames.pop();
        self.depth -= 1;
        results
    }

    fn descend(&mut self) -> Result<(), OnnxError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(OnnxError::Limit { what: "functions inside of each other", most: DEEPEST });
        }
        Ok(())
    }

    pub(super) fn lookup(&mut self, name: &str, at: &At) -> Result<Val, OnnxError> {
        for frame in self.frames.iter().rev() {
            if let Some(val) = frame.get(name) {
                return Ok(val.clone());
            }
        }
        Err(OnnxError::Undefined { value: name.to_owned(), at: Box::new(at.clone()) })
    }

    fn name_for(&self, node: &NodeProto, at: &At) -> String {
        let own = node.name.as_deref().filter(|n| !n.is_empty());
        let made = node.output.iter().find(|o| !o.is_empty()).map(String::as_str);
        own.or(made).unwrap_or(&at.op).trim_start_matches('/').to_owned()
    }

    /// A unique node name.
    pub(super) fn unique(&mut self, name: &str) -> String {
        unique(&mut self.names, name)
    }

    /// Computes the result if it is known, otherwise adds a node.
    pub(super) fn apply(&mut self, call: &Call, op: Op, inputs: &[Val]) -> Result<Val, OnnxError> {
        if let Some(known) = self.compute(&op, inputs)? {
            return Ok(Val::Lit(Rc::new(known)));
        }
        Ok(self.add(call, op, inputs)?.into_iter().next().unwrap_or(Val::Absent))
    }

    fn compute(&mut self, op: &Op, inputs: &[Val]) -> Result<Option<Lit>, OnnxError> {
        if !inputs.iter().all(|v| matches!(v, Val::Lit(_) | Val::Tensor(_))) {
            return Ok(None);
        }
        // Decoding a tensor of the file costs as much as computing one.
        let looked_into: usize =
            inputs.iter().map(|v| if let Val::Tensor(t) = v { len_of(t) } else { 0 }).sum();
        self.spend_on("elements read from constants", looked_into.min(MOST_ELEMENTS))?;
        let known: Option<Vec<Rc<Lit>>> = inputs.iter().map(|v| self.lit(v)).collect();
        let Some(known) = known else { return Ok(None) };
        let made = eval(op, &known.iter().map(Rc::as_ref).collect::<Vec<_>>());
        self.spend(made.as_ref().map_or(0, Lit::len))?;
        Ok(made)
    }

    /// Counts computed elements; a hostile file must not compute for ever.
    pub(super) fn spend(&mut self, elements: usize) -> Result<(), OnnxError> {
        const WHAT: &str = "elements computed from constants";
        if elements > MOST_ELEMENTS {
            return Err(OnnxError::Limit { what: WHAT, most: MOST_ELEMENTS });
        }
        self.spend_on(WHAT, elements)
    }

    fn spend_on(&mut self, what: &'static str, amount: usize) -> Result<(), OnnxError> {
        self.folded = self.folded.saturating_add(amount);
        if self.folded > self.most_folded {
            return Err(OnnxError::Limit { what, most: self.most_folded });
        }
        Ok(())
    }

    /// Adds a node, even if the result is known.
    pub(super) fn add(&mut self, call: &Call, op: Op, inputs: &[Val]) -> Result<Vec<Val>, OnnxError> {
        let ids = inputs.iter().map(|v| self.materialise(call, v)).collect::<Result<Vec<_>, _>>()?;
        let name = self.unique(&call.name);
        if let Some(scope) = &call.scope {
            self.scopes.insert(name.clone(), scope.clone());
        }
        let made = self.graph.add_node(name, op, ids);
        let made =
            made.map_err(|source| OnnxError::Infer { at: call.at.clone(), source: Box::new(source) })?;
        for v in &made {
            let shape = self.graph.shape(*v);
            if shape.rank() > MOST_DIMENSIONS || shape.count().is_none_or(|c| c.factor > MOST_VALUES) {
                return Err(OnnxError::Large {
                    at: call.at.clone(),
                    shape: shape.clone(),
                    most: MOST_VALUES,
                });
            }
        }
        self.makers.extend(made.iter().map(|id| (*id, self.graph.nodes.len() - 1)));
        Ok(made.into_iter().map(Val::Graph).collect())
    }

    /// A graph value that holds this.
    pub(super) fn materialise(&mut self, call: &Call, val: &Val) -> Result<ValueId, OnnxError> {
        let tensor = match val {
            Val::Graph(id) => return Ok(*id),
            Val::Tensor(t) => t.clone(),
            Val::Lit(l) => {
                self.spend(l.len())?;
                l.to_tensor().ok_or_else(|| call.unsupported("the size of the batch is used as data"))?
            }
            Val::Absent => return Err(call.malformed("an input that is needed is missing")),
            Val::Seq(_) => return Err(call.unsupported("a sequence of tensors is used as a tensor")),
            Val::IsNan(_) | Val::Random | Val::Chance(_) => {
                return Err(call.unsupported("its input cannot be computed here"));
            }
        };
        let name = self.unique(&format!("{}.constant", call.name));
        Ok(self.constant(name, tensor))
    }

    pub(super) fn constant(&mut self, name: String, tensor: Tensor) -> ValueId {
        let dims: Vec<usize> = tensor.shape().iter().map(|d| *d as usize).collect();
        let (dtype, shape) = (tensor.dtype(), Shape::fixed(&dims));
        self.graph.add_value(Value { name, dtype, shape, kind: ValueKind::Constant(tensor) })
    }

    /// The numbers of a value, if they are known.
    pub(super) fn lit(&self, val: &Val) -> Option<Rc<Lit>> {
        match val {
            Val::Lit(l) => Some(l.clone()),
            Val::Tensor(t) => Lit::from_tensor(t).map(Rc::new),
            _ => None,
        }
    }

    /// The shape of a value.
    pub(super) fn shape(&self, call: &Call, val: &Val) -> Result<Shape, OnnxError> {
        match val {
            Val::Graph(id) | Val::IsNan(id) => Ok(self.graph.shape(*id).clone()),
            Val::Lit(l) => Ok(l.as_shape()),
            Val::Tensor(t) => Ok(Shape::fixed(&t.shape().iter().map(|d| *d as usize).collect::<Vec<_>>())),
            Val::Absent => Err(call.malformed("an input that is needed is missing")),
            Val::Seq(_) | Val::Random | Val::Chance(_) => Err(call.unsupported("its input has no shape")),
        }
    }

    pub(super) fn dtype(&self, val: &Val) -> Option<DType> {
        match val {
            Val::Graph(id) => Some(self.graph.value(*id).dtype),
            Val::Lit(l) => Some(l.dtype),
            Val::Tensor(t) => Some(t.dtype()),
            _ => None,
        }
    }

    /// A known scalar of the same type as `like`.
    pub(super) fn number(&self, like: &Val, x: f64) -> Val {
        Val::Lit(Rc::new(Lit::scalar(self.dtype(like).unwrap_or(DType::F32), x)))
    }
}

fn len_of(tensor: &Tensor) -> usize {
    tensor.data().len() / tensor.dtype().size()
}

/// Returns and reserves a free name. The count of each name is kept; otherwise a thousand equal names would cost a
/// million attempts.
pub(super) fn unique(taken: &mut BTreeMap<String, usize>, name: &str) -> String {
    let mut n = *taken.get(name).unwrap_or(&0);
    let mut unique = if n == 0 { name.to_owned() } else { format!("{name}_{n}") };
    while n > 0 && taken.contains_key(&unique) {
        n += 1;
        unique = format!("{name}_{n}");
    }
    taken.insert(name.to_owned(), n + 1);
    if n > 0 {
        taken.insert(unique.clone(), 1);
    }
    unique
}

/// The context of the nodes in a function's body.
#[derive(Debug)]
pub(super) struct Body<'a> {
    attributes: &'a Attributes,
    defaults: &'a [super::proto::AttributeProto],
    scope: Option<String>,
}

/// The opset version of ONNX's own operators.
pub(super) fn default_opset(imports: &[super::proto::OperatorSetId]) -> Option<i64> {
    let own = imports.iter().find(|o| matches!(o.domain.as_deref(), None | Some("" | "ai.onnx")));
    own.and_then(|o| o.version)
}
