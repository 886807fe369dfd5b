//! How much memory the messages of a file take once they are decoded, and how many nodes there are.
//!
//! An empty node takes two bytes in a file and hundreds in memory, so the bytes are walked before they are decoded. Only
//! the structure is looked at; broken bytes end the walk, and the decoder then says what is wrong with them.

use super::proto::{
    AttributeProto, DimensionProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetId,
    StringStringEntry, TensorProto, ValueInfoProto,
};
use prost::encoding::decode_varint;

/// What decoding would take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Implied {
    pub(super) bytes: u64,
    /// Of the graph, of functions, and of graphs inside of nodes.
    pub(super) nodes: u64,
}

/// Lists double as they grow, and the old one lives while the new one is filled.
const GROWTH: u64 = 3;
/// What an allocation takes besides its bytes.
const ALLOCATION: u64 = 16;
/// The deepest message that prost decodes.
const MOST_NESTED: usize = 100;

/// A kind of message, as far as its fields matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    ValueInfo,
    Type,
    TensorType,
    Shape,
    Dimension,
    Function,
    Opset,
    Entry,
}

/// What a field holds.
enum Field {
    Message(Kind),
    Text,
    /// Numbers, packed or one by one, of this size each in memory and at least this size in the file.
    Numbers {
        size: usize,
        packed: usize,
    },
    /// Bytes that are borrowed from the file, or what is not read.
    Borrowed,
}

impl Kind {
    fn size(self) -> usize {
        match self {
            Self::Model => size_of::<ModelProto>(),
            Self::Graph => size_of::<GraphProto>(),
            Self::Node => size_of::<NodeProto>(),
            Self::Attribute => size_of::<AttributeProto>(),
            Self::Tensor => size_of::<TensorProto>(),
            Self::ValueInfo | Self::Type | Self::TensorType | Self::Shape => size_of::<ValueInfoProto>(),
            Self::Dimension => size_of::<DimensionProto>(),
            Self::Function => size_of::<FunctionProto>(),
            Self::Opset => size_of::<OperatorSetId>(),
            Self::Entry => size_of::<StringStringEntry>(),
        }
    }

    fn field(self, tag: u64) -> Field {
        use Field::{Borrowed, Message, Numbers, Text};
        let ints = Numbers { size: 8, packed: 1 };
        match (self, tag) {
            (Self::Model, 7) | (Self::Attribute, 6) => Message(Self::Graph),
            (Self::Model, 8) | (Self::Function, 9) => Message(Self::Opset),
            (Self::Model, 25) => Message(Self::Function),
            (Self::Graph, 1) | (Self::Function, 7) => Message(Self::Node),
            (Self::Graph, 5) | (Self::Attribute, 5) => Message(Self::Tensor),
            (Self::Graph, 11..=13) => Message(Self::ValueInfo),
            (Self::Node, 5) | (Self::Function, 11) => Message(Self::Attribute),
            (Self::Model, 14) | (Self::Graph, 16) | (Self::Node, 9) => Message(Self::Entry),
            (Self::Tensor, 13) | (Self::ValueInfo, 4) => Message(Self::Entry),
            (Self::ValueInfo, 2) => Message(Self::Type),
            (Self::Type, 1) => Message(Self::TensorType),
            (Self::TensorType, 2) => Message(Self::Shape),
            (Self::Shape, 1) => Message(Self::Dimension),
            (Self::Attribute, 7) | (Self::Tensor, 4) => Numbers { size: 4, packed: 4 },
            (Self::Attribute, 8) | (Self::Tensor, 1 | 7 | 11) => ints,
            (Self::Tensor, 5) => Numbers { size: 4, packed: 1 },
            (Self::Tensor, 10) => Numbers { size: 8, packed: 8 },
            (Self::Tensor, 9) | (Self::Attribute, 4) | (Self::Node, 6) => Borrowed,
            (Self::Model | Self::Graph | Self::Node | Self::Attribute | Self::Tensor, _)
            | (Self::ValueInfo | Self::Dimension | Self::Function | Self::Opset | Self::Entry, _) => Text,
            (Self::Type | Self::TensorType | Self::Shape, _) => Borrowed,
        }
    }
}

/// What decoding a model would take.
pub(super) fn implied(file: &[u8]) -> Implied {
    let mut implied = Implied::default();
    // Broken bytes: the decoder names them.
    let _end = implied.walk(file, Kind::Model, 0);
    implied
}

impl Implied {
    fn add(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    fn entry(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add((bytes as u64).saturating_mul(GROWTH));
    }

    fn walk(&mut self, mut rest: &[u8], kind: Kind, nested: usize) -> Option<()> {
        let nested = Some(nested + 1).filter(|nested| *nested <= MOST_NESTED)?;
        while !rest.is_empty() {
            let key = decode_varint(&mut rest).ok()?;
            let field = kind.field(key >> 3);
            match key & 7 {
                0 => {
                    decode_varint(&mut rest).ok()?;
                    self.number(&field);
                }
                1 => {
                    rest = rest.get(8..)?;
                    self.number(&field);
                }
                5 => {
                    rest = rest.get(4..)?;
                    self.number(&field);
                }
                2 => {
                    let len = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
                    let value = rest.get(..len)?;
                    rest = rest.get(len..)?;
                    self.value(value, &field, nested)?;
                }
                // Groups, which ONNX does not have.
                _ => return None,
            }
        }
        Some(())
    }

    fn number(&mut self, field: &Field) {
        if let Field::Numbers { size, .. } = field {
            self.entry(*size);
        }
    }

    fn value(&mut self, value: &[u8], field: &Field, nested: usize) -> Option<()> {
        match field {
            Field::Message(kind) => {
                self.nodes += u64::from(*kind == Kind::Node);
                self.entry(kind.size());
                self.walk(value, *kind, nested)
            }
            Field::Text => {
                self.entry(size_of::<String>());
                self.add(value.len() + ALLOCATION as usize);
                Some(())
            }
            Field::Numbers { size, packed } => {
                self.entry((value.len() / packed).saturating_mul(*size));
                Some(())
            }
            Field::Borrowed => Some(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::proto::{GraphProto, ModelProto, NodeProto, TensorProto};
    use super::*;
    use prost::Message as _;

    #[test]
    fn nodes_and_what_they_take_are_counted_without_decoding() {
        let node = NodeProto { input: vec!["a".to_owned(); 3], ..NodeProto::default() };
        let graph = GraphProto { node: vec![node; 10], ..GraphProto::default() };
        let model = ModelProto { graph: Some(graph), ..ModelProto::default() }.encode_to_vec();
        let implied = implied(&model);
        assert_eq!(implied.nodes, 10);
        assert!(implied.bytes >= 10 * (size_of::<NodeProto>() + 3 * size_of::<String>()) as u64);
    }

    #[test]
    fn tensors_in_bytes_cost_nothing_and_in_numbers_their_size() {
        let of = |tensor: TensorProto| {
            let graph = GraphProto { initializer: vec![tensor], ..GraphProto::default() };
            implied(&ModelProto { graph: Some(graph), ..ModelProto::default() }.encode_to_vec()).bytes
        };
        let raw = of(TensorProto { raw_data: Some(vec![0; 1 << 20].into()), ..TensorProto::default() });
        assert!(raw < 4096, "{raw}");
        let ints = of(TensorProto { int64_data: vec![0; 1 << 20], ..TensorProto::default() });
        assert!(ints >= 8 << 20, "{ints}");
    }

    #[test]
    fn broken_bytes_end_the_walk() {
        for bytes in [&[0x3a][..], &[0x3a, 5, 1], &[0xff; 20], &[0x3b], &[]] {
            assert_eq!(implied(bytes).nodes, 0);
        }
    }
}
