package daemon

import (
	"errors"
	"os"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// TestLookupJob: what cannot be asked is an error, by which the policy fails closed, and never an empty account.
func TestLookupJob(t *testing.T) {
	for _, s := range []farm.BatchSystem{farm.PBS, farm.LSF} { // LSF has no commands here
		if a, err := lookupJob(t.Context(), farm.Allotment{System: s, Job: "1"}, os.Getpid()); !errors.Is(err,
			errors.ErrUnsupported) {
			t.Errorf("%+v, %v", a, err)
		}
	}
	t.Setenv("SLURM_CONF", "/nonexistent")
	if a, err := lookupJob(t.Context(), farm.Allotment{System: farm.Slurm, Job: "1; x"}, os.Getpid()); !errors.As(err,
		new(*farm.Error)) {
		t.Errorf("%+v, %v", a, err)
	}
}
