package fleet

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/grange-project/grange/api"
)

// again checks that a body that could be read is read the same once it was written.
func again[T any](t *testing.T, text string) {
	t.Helper()
	from := func(text string) (v T, err error) { // as the server reads a host's request
		err = json.NewDecoder(strings.NewReader(text)).Decode(&v)
		return v, err
	}
	v, err := from(text)
	if err != nil {
		return
	}
	first, err := json.Marshal(v)
	if err != nil {
		return // a time of the year 10000 can be read, and not be written
	}
	if v, err = from(string(first)); err != nil {
		t.Fatalf("%q was written as %q: %v", text, first, err)
	}
	if second, err := json.Marshal(v); err != nil || string(second) != string(first) {
		t.Errorf("%q became %q: %v", first, second, err)
	}
}

// FuzzHostBodies: whatever a host, or somebody who says so, sends is read as it stands or refused.
func FuzzHostBodies(f *testing.F) {
	for _, text := range []string{"", "{}", "null", "[]",
		`{"token":"grange-join-a-b-c","csr":"AA==","name":"wn-1","now":"2026-11-22T12:00:00Z"}`,
		`{"instance":"a","vms":[{"id":"x"}]}`,
		`{"facts":{"images":["a"]},"vms":[null]}`, `{"title":"x","status":400}`, `{"vms":[` + strings.Repeat("{},",
			100) + `{}]}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		again[EnrolRequest](t, text)
		again[RenewRequest](t, text)
		again[Report](t, text)
		again[api.Problem](t, text)
	})
}
