// Generates Go code from sluice/status/v1/status.proto as protoc would, without protoc: protocompile reads the file, and the plugins
// protoc-gen-go and protoc-gen-go-grpc, tools of this module, write the code.
//
// Usage: generate PROTO_DIRECTORY, in the directory of this module. It writes the package statusv1.
package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

const status = "sluice/status/v1/status.proto"

// withImports is a file behind all that it imports.
func withImports(file protoreflect.FileDescriptor, seen map[string]bool) []*descriptorpb.FileDescriptorProto {
	if seen[file.Path()] {
		return nil
	}
	seen[file.Path()] = true
	var files []*descriptorpb.FileDescriptorProto
	imports := file.Imports()
	for i := range imports.Len() {
		files = append(files, withImports(imports.Get(i).FileDescriptor, seen)...)
	}
	return append(files, protodesc.ToFileDescriptorProto(file))
}

func run(directory string) error {
	compiler := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{directory}}),
	}
	compiled, err := compiler.Compile(context.Background(), status)
	if err != nil {
		return err
	}
	request, err := proto.Marshal(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{status},
		Parameter:      proto.String("module=harness/status,M" + status + "=harness/status/statusv1"),
		ProtoFile:      withImports(compiled[0], map[string]bool{}),
	})
	if err != nil {
		return err
	}
	for _, plugin := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		command := exec.Command("go", "tool", plugin)
		command.Stdin, command.Stderr = bytes.NewReader(request), os.Stderr
		output, err := command.Output()
		if err != nil {
			return fmt.Errorf("%s: %w", plugin, err)
		}
		var response pluginpb.CodeGeneratorResponse
		if err := proto.Unmarshal(output, &response); err != nil {
			return err
		}
		if response.Error != nil {
			return fmt.Errorf("%s: %s", plugin, response.GetError())
		}
		for _, file := range response.File {
			if err := os.MkdirAll(filepath.Dir(file.GetName()), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(file.GetName(), []byte(file.GetContent()), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: generate PROTO_DIRECTORY")
	}
	if err := run(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}
