package batch

import "github.com/grange-project/grange/internal/farm"

// Codes of errors about what batch systems answer, and are asked; see docs/errors.md.
const (
	CodeBatchGarbled  farm.Code = "batch-garbled"   // it answers what cannot be read
	CodeNoReservation farm.Code = "no-such-booking" // the word that clients of earlier releases know
	CodeNoBatchJob    farm.Code = "no-such-batch-job"
	CodeBadCursor     farm.Code = "bad-cursor"
)

// Away is the error when a batch system does not answer; one that says so already stays as it is.
func Away(system farm.BatchSystem, err error) error {
	if farm.IsCode(err, farm.CodeBatchAway) {
		return err
	}
	return &farm.Error{Kind: farm.Unavailable, Code: farm.CodeBatchAway, Message: string(system) + " does not answer",
		Err: err, Hint: "see whether its daemons run; what was asked for is tried again"}
}

// Garbled is the error for an answer that makes no sense.
func Garbled(system farm.BatchSystem, what string, err error) error {
	return &farm.Error{Kind: farm.Unavailable, Code: CodeBatchGarbled,
		Message: string(system) + ": " + what + " cannot be read", Err: err,
		Hint: "a version of the batch system that this version of grange does not know? docs/guide/batch.md lists " +
			"those that are tested"}
}

// NoNode is the error for a host that the batch system does not know.
func NoNode(system farm.BatchSystem, host string) error {
	return &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoNode, Message: string(system) + " knows no host " + host,
		Hint: "hosts are called as the batch system calls them"}
}

// NotOurs is the error for opening a host that somebody else closed.
func NotOurs(host, reason string) error {
	return &farm.Error{Kind: farm.Conflict, Code: farm.CodeNotOurs,
		Message: "host " + host + " was not closed by grange: " + reason, Hint: "whoever closed it opens it"}
}

// NoReservation is the error for a reservation that is not there, or not any more.
func NoReservation(name string) error {
	return &farm.Error{Kind: farm.NotFound, Code: CodeNoReservation, Message: "no reservation " + name,
		Hint: "it was released, or its time was over"}
}

// NoJob is the error for a job that does not run.
func NoJob(system farm.BatchSystem, job string) error {
	return &farm.Error{Kind: farm.NotFound, Code: CodeNoBatchJob, Message: string(system) + " runs no job " + job,
		Hint: "it may have ended just now"}
}

// Refused is the error when the system says no to a reservation for good: a host, account or queue that it does not
// have.
func Refused(system farm.BatchSystem, said string) error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadReservation,
		Message: string(system) + " refuses the reservation: " + said,
		Hint:    "see that account, queue and host exist and fit"}
}
