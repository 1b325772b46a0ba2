package farm

// Errors about who may do what in the fleet, where a project's VMs go, and farm files.
const (
	CodeUserHasVMs  Code = "user-has-vms" // a user that has VMs is not deleted
	CodeNoRole      Code = "no-role"      // no role of the caller allows it
	CodeNoCell      Code = "no-cell"      // no cell is for the project, and there is no default one
	CodeCellsClosed Code = "cells-closed" // all the cells of the project are closed
	CodeForeignCell Code = "foreign-cell" // the cell is not for the project
	CodeNoSuchCell  Code = "no-such-cell" // no cell of that name
	CodeQuota       Code = "over-quota"   // more than a project or cell may have
	CodeBadName     Code = "bad-name"     // a name that no object of the farm can have
	// a farm that cannot be: an object makes no sense, or names what is not there
	CodeBadFarm       Code = "bad-farm"
	CodeInUse         Code = "in-use"       // what should go away is still needed
	CodeOtherPlan     Code = "other-plan"   // an apply would do other things than were shown
	CodeBadCells      Code = "bad-cell-map" // lines of nova.conf that nova itself would not take
	CodeNoUser        Code = "no-user"
	CodeNoGrant       Code = "no-grant"
	CodeNoToken       Code = "no-token"
	CodeNoAction      Code = "no-action"       // nothing that anybody could do in the fleet is called so
	CodeBadTokenOrder Code = "bad-token-order" // a token that cannot be made
)
