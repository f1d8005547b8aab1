// A client of the status service, with code generated from the shipped .proto and grpc-go. It prints one JSON object a line: each
// message, and how the call ended as {"code": …, "message": …}.
//
// Usage: status-client ADDRESS CA TOKEN VERB ARGUMENT…; TOKEN is a file, or empty for none. Verbs:
//
//	list NAMESPACE PAGE_SIZE PAGE_TOKEN
//	get NAMESPACE NAME
//	watch NAMESPACE NAME
//	health
//	reflect
//	stall NAMESPACE CONNECTIONS STREAMS
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"harness/status/statusv1"
)

// token is sent with each call.
type token string

func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if t == "" {
		return nil, nil
	}
	return map[string]string{"authorization": "Bearer " + string(t)}, nil
}

func (token) RequireTransportSecurity() bool { return true }

func print(message proto.Message) error {
	line, err := protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(message)
	if err != nil {
		return err
	}
	_, err = fmt.Println(string(line))
	return err
}

func ended(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return nil
	}
	said, _ := status.FromError(err)
	line, err := json.Marshal(map[string]string{"code": said.Code().String(), "message": said.Message()})
	if err != nil {
		return err
	}
	_, err = fmt.Println(string(line))
	return err
}

func call(connection *grpc.ClientConn, verb string, arguments []string) error {
	client, ctx := statusv1.NewStatusServiceClient(connection), context.Background()
	switch verb {
	case "list":
		size, err := strconv.ParseInt(arguments[1], 10, 32)
		if err != nil {
			return err
		}
		request := &statusv1.ListClustersRequest{Namespace: arguments[0], PageSize: int32(size), PageToken: arguments[2]}
		answer, err := client.ListClusters(ctx, request)
		if err != nil {
			return ended(err)
		}
		return print(answer)
	case "get":
		answer, err := client.GetCluster(ctx, &statusv1.GetClusterRequest{Namespace: arguments[0], Name: arguments[1]})
		if err != nil {
			return ended(err)
		}
		return print(answer)
	case "watch":
		stream, err := client.WatchClusters(ctx, &statusv1.WatchClustersRequest{Namespace: arguments[0], Name: arguments[1]})
		for err == nil {
			var message *statusv1.WatchClustersResponse
			if message, err = stream.Recv(); err == nil {
				err = print(message)
			}
		}
		return ended(err)
	case "health":
		service := statusv1.StatusService_ServiceDesc.ServiceName
		answer, err := grpc_health_v1.NewHealthClient(connection).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service})
		if err != nil {
			return ended(err)
		}
		return print(answer)
	case "reflect":
		stream, err := reflection.NewServerReflectionClient(connection).ServerReflectionInfo(ctx)
		if err != nil {
			return ended(err)
		}
		list := &reflection.ServerReflectionRequest_ListServices{}
		if err := stream.Send(&reflection.ServerReflectionRequest{MessageRequest: list}); err != nil {
			return ended(err)
		}
		answer, err := stream.Recv()
		if err != nil {
			return ended(err)
		}
		return print(answer)
	default:
		return fmt.Errorf("there is no verb %q", verb)
	}
}

// gated is a connection that is not read any more once its gate is closed.
type gated struct {
	net.Conn
	gate *sync.RWMutex
}

func (g gated) Read(into []byte) (int, error) {
	read, err := g.Conn.Read(into)
	g.gate.RLock()
	defer g.gate.RUnlock()
	return read, err
}

// stall opens streams with windows that hold whatever is sent, reads each until it is synced, and then reads neither streams nor
// connections, until it is asked to end.
func stall(address string, options []grpc.DialOption, arguments []string) error {
	connections, err := strconv.Atoi(arguments[1])
	if err != nil {
		return err
	}
	streams, err := strconv.Atoi(arguments[2])
	if err != nil {
		return err
	}
	var gate sync.RWMutex
	options = append(options, grpc.WithInitialWindowSize(1<<24), grpc.WithInitialConnWindowSize(1<<28),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			var dialer net.Dialer
			connection, err := dialer.DialContext(ctx, "tcp", address)
			return gated{connection, &gate}, err
		}))
	for range connections {
		connection, err := grpc.NewClient(address, options...)
		if err != nil {
			return err
		}
		client := statusv1.NewStatusServiceClient(connection)
		for range streams / connections {
			request := &statusv1.WatchClustersRequest{Namespace: arguments[0]}
			stream, err := client.WatchClusters(context.Background(), request)
			for err == nil {
				var message *statusv1.WatchClustersResponse
				message, err = stream.Recv()
				if message.GetChange() == statusv1.Change_CHANGE_SYNCED {
					break
				}
			}
			if err != nil {
				return ended(err)
			}
		}
	}
	gate.Lock()
	fmt.Println(`{"stalled": true}`)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	<-ctx.Done()
	return nil
}

func run(arguments []string) error {
	if len(arguments) < 4 {
		return errors.New("usage: status-client ADDRESS CA TOKEN VERB ARGUMENT…")
	}
	address, ca, file, verb, rest := arguments[0], arguments[1], arguments[2], arguments[3], arguments[4:]
	transport, err := credentials.NewClientTLSFromFile(ca, "")
	if err != nil {
		return err
	}
	var bearer token
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		bearer = token(strings.TrimSpace(string(text)))
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(transport), grpc.WithPerRPCCredentials(bearer)}
	if verb == "stall" {
		return stall(address, options, rest)
	}
	connection, err := grpc.NewClient(address, options...)
	if err != nil {
		return err
	}
	defer connection.Close()
	return call(connection, verb, rest)
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}
