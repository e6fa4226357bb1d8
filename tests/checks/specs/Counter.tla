------------------------------- MODULE Counter -------------------------------
(* A counter that clients read and add to: small, and with everything that a tool for specs has to cope with:  *)
(* actions without parameters, a guard that says why, records in sequences, functions, sets.                    *)
EXTENDS Integers, Sequences

CONSTANTS Clients, Amounts, Limit

VARIABLES total, seen, log, readers, response

vars == <<total, seen, log, readers, response>>

AddError(client, amount) ==
    IF seen[client] # total THEN "STALE"
    ELSE IF total + amount > Limit THEN "FULL"
    ELSE "NONE"

Init == /\ total = 0
        /\ seen = [client \in Clients |-> 0]
        /\ log = <<>>
        /\ readers = {}
        /\ response = "NONE"

(* A client reads the counter. *)
Read(client) ==
    /\ seen[client] # total
    /\ seen' = [seen EXCEPT ![client] = total]
    /\ readers' = readers \union {client}
    /\ UNCHANGED <<total, log, response>>

(* A client that knows the counter adds to it. *)
Add(client, amount) ==
    /\ AddError(client, amount) = "NONE"
    /\ total' = total + amount
    /\ log' = Append(log, [client |-> client, amount |-> amount])
    /\ response' = "NONE"
    /\ UNCHANGED <<seen, readers>>

(* The counter refuses. *)
Refuse(client, amount) ==
    /\ AddError(client, amount) # "NONE"
    /\ response' = AddError(client, amount)
    /\ UNCHANGED <<total, seen, log, readers>>

(* The counter starts again. *)
Reset ==
    /\ total = Limit
    /\ total' = 0
    /\ log' = <<>>
    /\ UNCHANGED <<seen, readers, response>>

Next ==
    \/ \E client \in Clients : Read(client)
    \/ \E client \in Clients, amount \in Amounts : Add(client, amount) \/ Refuse(client, amount)
    \/ Reset

Spec == Init /\ [][Next]_vars

(* The total stays within the limit. *)
NotAboveLimit == total <= Limit
NotAboveLimitWitness == total = Limit
NeverFull == response # "FULL"
Drained == <>(total = Limit)
NeverShrinks == [][total' >= total]_vars
Grows == [][total' >= total \/ total = Limit]_vars
GrowsWitness == total > 0 /\ total' > total
NoDebt == total >= 0
NoDebtWitness == total < 0
HasTotal == total \in Int
HasTotalWitness == total >= 0
IsFull == total = Limit
IsNegative == total < 0
=============================================================================
