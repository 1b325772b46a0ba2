package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
)

// maxEvent is the longest line of an event that is read, in bytes.
const maxEvent = 4 << 20

// Watch calls each with every change of VMs of the filter that the caller may see, after a revision, until ctx ends,
// each fails, or the connection breaks: then call it again with the revision of the last change. Gone: list anew.
func (c VMClient) Watch(ctx context.Context, f VMFilter, after int64, each func(Change) error) error {
	return c.client.watch(ctx, "/v1/vms", f.Query(), after, each)
}

// Watch does so with every change of the kinds; none: of all that the caller may see.
func (c *Client) Watch(ctx context.Context, kinds []string, after int64, each func(Change) error) error {
	return c.watch(ctx, "/v1/changes", url.Values{"kind": kinds}, after, each)
}

func (c *Client) watch(ctx context.Context, path string, query url.Values, after int64, each func(Change) error) error {
	query = copyOf(query)
	query.Set("watch", "true")
	response, err := c.do(ctx, request{method: "GET", path: path, query: query, accept: "text/event-stream",
		last: after})
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return events(response.Body, each)
}

// events reads server-sent events. Comments keep the connection alive and mean nothing; nor does the end of the stream:
// io.ErrUnexpectedEOF.
func events(r io.Reader, each func(Change) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxEvent)
	var data strings.Builder
	for lines.Scan() {
		line := lines.Text()
		if text, ok := strings.CutPrefix(line, "data:"); ok {
			data.WriteString(strings.TrimPrefix(text, " "))
			continue
		}
		if line != "" || data.Len() == 0 {
			continue
		}
		var change Change
		if err := json.Unmarshal([]byte(data.String()), &change); err != nil {
			return fmt.Errorf("event: %w", err)
		}
		data.Reset()
		if err := each(change); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

// VM is the VM that a change tells of.
func (c Change) VM() (VM, error) {
	var v VM
	err := json.Unmarshal(c.Object, &v)
	return v, err
}
