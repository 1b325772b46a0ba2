package cli

import (
	"errors"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// TestLookupJob: what cannot be asked is an error, by which the policy fails closed, and never an empty account.
func TestLookupJob(t *testing.T) {
	for _, a := range []farm.Allotment{{System: farm.PBS, Job: "1"}, {System: farm.Slurm, Job: "1; x"}} {
		account, queue, _, err := lookupJob(t.Context(), a)
		if e := new(farm.Error); !errors.As(err, &e) || account != "" || queue != "" {
			t.Errorf("%+v: %q, %q, %v", a, account, queue, err)
		}
	}
}
