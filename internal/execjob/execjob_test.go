package execjob

import (
	"slices"
	"strings"
	"testing"

	"github.com/grange-project/grange/api"
)

// TestEvents reads what the command says, and what it never should.
func TestEvents(t *testing.T) {
	const text = `{"event":"phase","phase":{"name":"grant","ms":1.5}}
{"event":"vm","vm":{"id":"1","name":"grange-1"}}
not JSON at all
{"event":"result","status":199,"error":"no CPUs are free","hint":"wait","code":"no-room","phases":[{"name":"clean","ms":2}]}
`
	var e Events
	var seen []string
	e.read(strings.NewReader(text), func(v api.VM) { seen = append(seen, v.Name) })
	if e.Code != "no-room" || len(e.Phases) != 2 || e.VM == nil || e.VM.ID != "1" ||
		!slices.Equal(seen, []string{"grange-1"}) {
		t.Errorf("%+v, %v", &e, seen)
	}
	if !slices.Equal(e.other, []string{"not JSON at all", "no CPUs are free"}) {
		t.Errorf("%q", e.other)
	}
}
