package apiserver

import (
	"bytes"
	"encoding/json"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/authn"
	"github.com/grange-project/grange/internal/server"
)

var update = flag.Bool("update", false, "write golden files anew")

// bare is an API without a store behind it: routes and edge.
func bare(t *testing.T) *API {
	t.Helper()
	s := &server.Server{}
	return New(Options{Server: s, Authn: authn.New(authn.Options{Directory: s.Directory()}),
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Version: "test"})
}

// TestOpenAPI holds docs/reference/openapi.json equal to the routes.
func TestOpenAPI(t *testing.T) {
	text, err := bare(t).OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", " "); err != nil {
		t.Fatal(err)
	}
	b.WriteByte('\n')
	file := filepath.Join("..", "..", "docs", "reference", "openapi.json")
	if *update {
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, b.Bytes()) {
		t.Errorf("docs/reference/openapi.json is not what the routes say; `go test ./internal/apiserver -update` "+
			"writes it anew\n%s", cmp.Diff(strings.Split(string(want), "\n"), strings.Split(b.String(), "\n")))
	}
}

type described struct {
	Paths map[string]map[string]struct {
		OperationID string `json:"operationId"`
		Summary     string
		Parameters  []struct{ Name, In string }
		Responses   map[string]json.RawMessage
	}
}

// TestEveryChangeIsGuarded: what makes something takes an idempotency key, and what changes one thing takes the
// revision that it is meant for.
func TestEveryChangeIsGuarded(t *testing.T) {
	neither := map[string]string{
		"report-transfers": "what a host holds now", "get-image-piece": "changes nothing",
		"apply-farm": "its plan says what it is meant for", "why": "it changes nothing",
		"put-grant": "there is one, or there is none", "delete-grant": "the same",
		"delete-token": "a token never changes", "end-session": "it does not come back",
		"login": "its token is taken once", "logout": "there is a session, or there is none",
		"explain-claims":    "changes nothing",
		"delete-join-token": "its uses alone change",
		"rotate-ca":         "refused while a rotation is under way",
		"retire-ca":         "refused unless one is, and it names whom it cuts off",
		"open-hosts":        "of several hosts", "close-hosts": "of several hosts", "drain-hosts": "of several hosts",
		"label-hosts":       "of several hosts",
		"drain-file-system": "an order says all of a drain", "resume-file-system": "there is one, or there is none",
		"add-image": "its content says what it is", "put-image-upload": "its path says what it is",
		"enrol-host": "a host's", "renew-host": "a host's", "report-host": "a host's", "bring-stream": "a host's",
		"report-jobs": "a host's",
		"bring-usage": "a host's, and records have IDs", "close-usage": "a month is closed once, for good",
		"note-incident":  "notes are only added, and it takes an idempotency key",
		"withdraw-usage": "what is withdrawn is passed over",
		"link-incident":  "what is there already is passed over",
	}
	text, err := bare(t).OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	var d described
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	for path, methods := range d.Paths {
		for method, op := range methods {
			if method == "get" || neither[op.OperationID] != "" {
				delete(neither, op.OperationID)
				continue
			}
			want := "If-Match"
			if method == "post" && !strings.Contains(path, "{") {
				want = "Idempotency-Key"
			}
			if !slices.ContainsFunc(op.Parameters, func(p struct{ Name, In string }) bool {
				return p.Name == want &&
					p.In == "header"
			}) {
				t.Errorf("%s %s takes no %s", method, path, want)
			}
		}
	}
	if len(neither) > 0 {
		t.Errorf("no routes any more: %v", neither)
	}
}

// TestEveryRouteIsDescribed holds the mux against OpenAPI: a route that a client cannot find is none.
func TestEveryRouteIsDescribed(t *testing.T) {
	a := bare(t)
	text, err := a.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	var d described
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for pattern := range a.whose {
		method, path, _ := strings.Cut(pattern, " ")
		op, ok := d.Paths[path][strings.ToLower(method)]
		switch {
		case !ok:
			t.Errorf("%s is not in OpenAPI", pattern)
		case op.OperationID == "" || seen[op.OperationID]:
			t.Errorf("%s has the operation ID %q, which is empty or another's", pattern, op.OperationID)
		case op.Summary == "":
			t.Errorf("%s says nothing of itself", pattern)
		case op.Responses["default"] == nil:
			t.Errorf("%s has no problems", pattern)
		}
		seen[op.OperationID] = true
	}
	routes := 0
	for _, methods := range d.Paths {
		routes += len(methods)
	}
	if routes != len(a.whose) {
		t.Errorf("OpenAPI has %d routes, the mux %d", routes, len(a.whose))
	}
}
