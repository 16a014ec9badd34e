mod transfers;
