// A client with explicit contents, made as Triton's Java examples are: it reads an answer's raw_output_contents only.
// Java's compiler of messages is not needed: they are made from a descriptor set. Arguments: host, port, descriptor set,
// model. The model adds and subtracts 16 whole numbers. Printed: both outputs, one a line.

import com.google.protobuf.ByteString;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import io.grpc.CallOptions;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.netty.NettyChannelBuilder;
import io.grpc.protobuf.ProtoUtils;
import io.grpc.stub.ClientCalls;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.StringJoiner;

class Explicit {
  private static final int COUNT = 16;

  public static void main(String[] arguments) throws Exception {
    FileDescriptorSet set = FileDescriptorSet.parseFrom(Files.readAllBytes(Path.of(arguments[2])));
    FileDescriptor file = FileDescriptor.buildFrom(set.getFile(0), new FileDescriptor[0]);
    ManagedChannel channel =
        NettyChannelBuilder.forAddress(arguments[0], Integer.parseInt(arguments[1])).usePlaintext().build();
    DynamicMessage answer = ask(channel, file, request(file, arguments[3]));
    Descriptor type = answer.getDescriptorForType();
    for (Object raw : (List<?>) answer.getField(type.findFieldByName("raw_output_contents"))) {
      ByteBuffer bytes = ((ByteString) raw).asReadOnlyByteBuffer().order(ByteOrder.LITTLE_ENDIAN);
      StringJoiner line = new StringJoiner(" ");
      while (bytes.hasRemaining()) {
        line.add(String.valueOf(bytes.getInt()));
      }
      System.out.println(line);
    }
    channel.shutdownNow();
  }

  private static DynamicMessage request(FileDescriptor file, String model) {
    Descriptor type = file.findMessageTypeByName("ModelInferRequest");
    DynamicMessage.Builder made = DynamicMessage.newBuilder(type).setField(type.findFieldByName("model_name"), model);
    for (String name : List.of("INPUT0", "INPUT1")) {
      Descriptor input = type.findNestedTypeByName("InferInputTensor");
      Descriptor values = file.findMessageTypeByName("InferTensorContents");
      DynamicMessage.Builder contents = DynamicMessage.newBuilder(values);
      for (int number = 0; number < COUNT; number++) {
        contents.addRepeatedField(values.findFieldByName("int_contents"), number);
      }
      DynamicMessage.Builder tensor = DynamicMessage.newBuilder(input);
      tensor.setField(input.findFieldByName("name"), name);
      tensor.setField(input.findFieldByName("datatype"), "INT32");
      tensor.addRepeatedField(input.findFieldByName("shape"), 1L);
      tensor.addRepeatedField(input.findFieldByName("shape"), (long) COUNT);
      tensor.setField(input.findFieldByName("contents"), contents.build());
      made.addRepeatedField(type.findFieldByName("inputs"), tensor.build());
    }
    return made.build();
  }

  private static DynamicMessage ask(ManagedChannel channel, FileDescriptor file, DynamicMessage request) {
    DynamicMessage empty = DynamicMessage.getDefaultInstance(file.findMessageTypeByName("ModelInferResponse"));
    MethodDescriptor<DynamicMessage, DynamicMessage> method =
        MethodDescriptor.<DynamicMessage, DynamicMessage>newBuilder()
            .setType(MethodDescriptor.MethodType.UNARY)
            .setFullMethodName("inference.GRPCInferenceService/ModelInfer")
            .setRequestMarshaller(ProtoUtils.marshaller(request.getDefaultInstanceForType()))
            .setResponseMarshaller(ProtoUtils.marshaller(empty))
            .build();
    return ClientCalls.blockingUnaryCall(channel, method, CallOptions.DEFAULT, request);
  }
}
