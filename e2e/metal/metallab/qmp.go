package metallab

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// monitor is a connection to the QEMU of a host.
type monitor struct {
	conn    net.Conn
	answers *json.Decoder
}

func dialMonitor(ctx context.Context, socket string) (*monitor, error) {
	var conn net.Conn
	err := until(ctx, 20*time.Millisecond, func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, "unix", socket)
		return err
	})
	if err != nil {
		return nil, err
	}
	m := &monitor{conn, json.NewDecoder(bufio.NewReader(conn))}
	var greeting struct{ QMP json.RawMessage }
	if err := m.answers.Decode(&greeting); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if err := m.run("qmp_capabilities", nil, nil); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return m, nil
}

// run sends a command and waits for its answer; events in between are dropped.
func (m *monitor) run(command string, arguments, result any) error {
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	if err := json.NewEncoder(m.conn).Encode(request); err != nil {
		return err
	}
	for {
		var answer struct {
			Event  string
			Return json.RawMessage
			Error  *struct{ Desc string }
		}
		switch err := m.answers.Decode(&answer); {
		case err != nil:
			return fmt.Errorf("%s: %w", command, err)
		case answer.Error != nil:
			return fmt.Errorf("%s: %s", command, answer.Error.Desc)
		case answer.Return == nil:
			continue
		case result == nil:
			return nil
		default:
			return json.Unmarshal(answer.Return, result)
		}
	}
}

// onReboot sets what QEMU does when the host resets its processors: "reset", or "shutdown", which ends QEMU.
func (m *monitor) onReboot(action string) error {
	return m.run("set-action", map[string]any{"reboot": action}, nil)
}

// quit ends QEMU at once, as a cut of power ends a host, and waits until it has closed the connection.
func (m *monitor) quit() {
	defer m.conn.Close()
	if json.NewEncoder(m.conn).Encode(map[string]any{"execute": "quit"}) == nil {
		io.Copy(io.Discard, m.conn) // QEMU drops what it has not read when we close first
	}
}

// shareMemory has migrations leave out memory that lies in files.
func (m *monitor) shareMemory() error {
	return m.run("migrate-set-capabilities", map[string]any{
		"capabilities": []map[string]any{{"capability": "x-ignore-shared", "state": true}}}, nil)
}

// migrated waits for the end of a migration, in either direction.
func (m *monitor) migrated(ctx context.Context) error {
	return until(ctx, 10*time.Millisecond, func() error {
		var state struct {
			Status string
			Reason string `json:"error-desc"`
		}
		if err := m.run("query-migrate", nil, &state); err != nil {
			return final{err}
		}
		switch state.Status {
		case "completed":
			return nil
		case "failed":
			return final{fmt.Errorf("snapshot: %s", cmp.Or(state.Reason, state.Status))}
		}
		return fmt.Errorf("snapshot: %s", state.Status)
	})
}

// final is an error that until does not wait after.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// until repeats try until it succeeds or the context ends.
func until(ctx context.Context, pause time.Duration, try func() error) error {
	for {
		err := try()
		var last final
		if err == nil || errors.As(err, &last) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last: %w", context.Cause(ctx), err)
		case <-time.After(pause):
		}
	}
}
